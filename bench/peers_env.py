"""The environment of the peers: their own, made once, so that nothing of theirs ever gets into ours."""

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
"""Everything that the benchmark writes."""

PACKAGES = (
    # litellm and langchain-core: the newest whose certifi every index has. litellm holds openai below 3, which holds
    # openai-agents at 0.20; in exchange one environment is enough for all of them.
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
    # What our own code needs, to be measured in the same process as they are.
    "apsw==3.54.1.0",
    "psycopg[binary,pool]==3.3.4",
    "splintr-rs==0.22.0",
)
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else `import litellm` asks the network for its prices
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


@dataclass(frozen=True)
class Peers:
    """The peers' interpreter, or why there is none."""

    python: Path | None
    why: str = ""

    def run(self, *arguments: str, timeout_seconds: float = 1_800) -> str:
        """Run `bench.peers` in their environment; what it writes to the file that it is given.

        Our own source is on its path, so that we are measured in the same process as they are.
        """
        assert self.python is not None
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as answer:
            subprocess.run(
                [str(self.python), "-m", "bench.peers", answer.name, *arguments],
                cwd=ROOT,
                env=os.environ | OFFLINE | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
                stdout=subprocess.DEVNULL,
                timeout=timeout_seconds,
                check=True,
            )
            return answer.read()


def peers() -> Peers:
    """Their environment, made if it is not there yet."""
    place = HOME / "peers"
    python, stamp = place / "bin" / "python", place / "installed.txt"
    wanted = "\n".join(PACKAGES)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return Peers(python)
    progress("installing the peers in an environment of their own (once, two minutes)")
    shutil.rmtree(place, ignore_errors=True)
    try:
        venv.create(place, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return Peers(None, f"no environment for the peers: {error}")
    missing = _install(python, PACKAGES)
    if missing:  # one that cannot be had must not cost us the others
        failed = [package for package in PACKAGES if _install(python, [package])]
        missing = missing if len(failed) == len(PACKAGES) else ""
        progress(f"could not be installed: {', '.join(failed)}; remove {place} to try again")
    if missing:
        shutil.rmtree(place, ignore_errors=True)
        return Peers(None, f"the peers could not be installed: {missing}")
    stamp.write_text(wanted, encoding="utf-8")
    return Peers(python)


def _install(python: Path, packages: tuple[str, ...] | list[str]) -> str:
    """Install; nothing if that went well, else pip's last words."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", "--retries", "1", "install", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    print(done.stderr[-2_000:], file=sys.stderr)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1]
