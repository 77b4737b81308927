"""The virtual environment of the peers. It is separate, so that their dependencies do not affect ours."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from bench.corpus import ROOT
from bench.report import progress

HOME = ROOT / ".bench"
"""The folder for all files that the benchmark writes."""

PACKAGES = (
    # litellm and langchain-core: the newest versions whose certifi every index has. litellm requires openai < 3, which
    # limits openai-agents to 0.20; so one environment is enough for all.
    "langchain-core==1.7.2",
    "langchain==1.4.7",
    "litellm==1.106.2",
    "llama-index-core==0.14.25",
    "strands-agents==1.62.0",
    "openai-agents[sqlalchemy]==0.20.0",
    "autogen-core==0.7.5",
    "google-adk==2.13.0",
    "langgraph-checkpoint-sqlite==3.1.2",
    "langgraph-checkpoint-postgres==3.1.1",
    "aiosqlite==0.22.1",
    # Dependencies of minutebook, which is measured in the same process.
    "apsw==3.54.1.0",
    "psycopg[binary,pool]==3.3.4",
    "splintr-rs==0.22.0",
)
HEADROOM_PACKAGES = ("headroom-ai==0.42.0", "apsw==3.54.1.0", "pydantic>=2.10", "splintr-rs==0.22.0")
"""headroom-ai and the others require different versions of click."""
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise `import litellm` downloads its prices
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


@dataclass(frozen=True)
class Peers:
    """The peers' Python interpreter, or the reason why there is none."""

    python: Path | None
    missing_reason: str = ""

    def run(self, *arguments: str, module: str = "bench.peers", timeout_seconds: float = 1_800) -> str:
        """Run a module of the benchmark in the peers' environment; return its result as JSON.

        Our source is on its path, so that minutebook is measured in the same process.
        """
        assert self.python is not None
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as result:
            subprocess.run(
                [str(self.python), "-m", module, result.name, *arguments],
                cwd=ROOT,
                env=os.environ | OFFLINE | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
                stdout=subprocess.DEVNULL,
                timeout=timeout_seconds,
                check=True,
            )
            return result.read()


def find_or_install_peers() -> Peers:
    """The peers' environment. It is created if it does not exist or is out of date."""
    return _find_or_install("peers", PACKAGES)


def find_or_install_headroom() -> Peers:
    """The environment of headroom-ai."""
    return _find_or_install("headroom", HEADROOM_PACKAGES)


def _find_or_install(name: str, packages: tuple[str, ...]) -> Peers:
    folder = HOME / name
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    required = "\n".join(packages)
    if installed.is_file() and installed.read_text(encoding="utf-8") == required:
        return Peers(python)
    progress("installing the peers in a separate environment (once, takes two minutes)")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as failure:
        return Peers(None, f"cannot create an environment for the peers: {failure}")
    error = _install(python, packages)
    if error:  # install the others without a package that fails
        failed = [package for package in packages if _install(python, [package])]
        error = error if len(failed) == len(packages) else ""
        progress(f"could not be installed: {', '.join(failed)}; delete {folder} to try again")
    if error:
        shutil.rmtree(folder, ignore_errors=True)
        return Peers(None, f"the peers could not be installed: {error}")
    installed.write_text(required, encoding="utf-8")
    return Peers(python)


def _install(python: Path, packages: tuple[str, ...] | list[str]) -> str:
    """Install packages; return pip's last error message, or nothing if it succeeded."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", "--retries", "1", "install", *packages]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return ""
    print(process.stderr[-2_000:], file=sys.stderr)
    errors = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1]
