"""Other gateways between a client and the provider: the litellm proxy and Portkey. They are installed if necessary."""

import shutil
import subprocess
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers_env import HOME
from bench.report import Part, Table, progress
from bench.service_processes import Route, free_port, run_process

LITELLM = "litellm[proxy]==1.106.2"
PORTKEY = "@portkey-ai/gateway@1.15.2"
LITELLM_ROUTE = "litellm proxy"
KEY = "sk-bench"


def start_gateways(stack: ExitStack, folder: Path, part: Part, upstream: str) -> Iterator[Route]:
    """Start the gateways that can be installed. For each other one, a note is added to the part."""
    command = _find_or_install_litellm()
    if command is None:
        part.tables.append(Table("litellm: skipped, it could not be installed", []))
    else:
        yield Route(LITELLM_ROUTE, *stack.enter_context(_litellm_proxy(command, folder, upstream)), key=KEY)
    program = _find_or_install_portkey()
    if program is None:
        part.tables.append(Table("Portkey: skipped, it could not be installed with npm", []))
    else:
        headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream}
        # Version 1.15.2 on Node.js 20 answers every streamed request to a custom host with status 500.
        yield Route("Portkey", *stack.enter_context(_portkey(program)), headers=headers, can_stream=False)


@contextmanager
def _litellm_proxy(command: Path, folder: Path, upstream: str) -> Iterator[tuple[int, int]]:
    port = free_port()
    config = folder / "litellm.yaml"
    models = "".join(
        f"  - model_name: {name}\n    litellm_params:\n"
        f"      {{model: openai/{name}, api_base: '{upstream}', api_key: none}}\n"
        for name in ("bench", "bench-idle")
    )
    config.write_text(f"model_list:\n{models}general_settings: {{master_key: {KEY}}}\n", encoding="utf-8")
    options = ["--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
    with run_process([str(command), *options], port, quiet=True) as pid:
        yield port, pid


@contextmanager
def _portkey(program: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    with run_process(["node", str(program), f"--port={port}", "--headless"], port, quiet=True) as pid:
        yield port, pid


def _find_or_install_litellm() -> Path | None:
    """The command of the proxy. It is installed in a separate environment if necessary; None if that fails."""
    folder = HOME / "litellm"
    command, installed = folder / "bin" / "litellm", folder / "installed.txt"
    if installed.is_file() and installed.read_text(encoding="utf-8") == LITELLM:
        return command
    progress("installing the litellm proxy in a separate environment (once, takes two minutes)")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    process = subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install", LITELLM],
        capture_output=True,
        check=False,
    )
    if process.returncode:
        return None
    installed.write_text(LITELLM, encoding="utf-8")
    return command


def _find_or_install_portkey() -> Path | None:
    """The program of the gateway. It is installed with npm if necessary; None if that fails."""
    folder = HOME / "portkey"
    program, installed = folder / "node_modules/@portkey-ai/gateway/build/start-server.js", folder / "installed.txt"
    if installed.is_file() and installed.read_text(encoding="utf-8") == PORTKEY:
        return program
    if shutil.which("npm") is None or shutil.which("node") is None:
        return None
    progress("installing Portkey with npm (once)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", str(folder), PORTKEY]
    if subprocess.run(command, capture_output=True, check=False).returncode or not program.is_file():
        return None
    installed.write_text(PORTKEY, encoding="utf-8")
    return program
