"""Read a folder of Claude Code sessions: time and peak memory, which must not depend on the size of the folder.

1 GB, or 50 MB with `--quick`; the environment variable MINUTEBOOK_BENCH_MB sets another size.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Part, Table, Target, progress, time_of
from minutebook.testing import coding_session
from minutebook.wire import to_anthropic

SESSION_MB = 2
MAX_GROWTH = 60_000_000
"""Maximum number of bytes that the peak memory of the whole folder exceeds that of a twentieth of it."""
READ = """
import sys
from pathlib import Path
from time import perf_counter
from minutebook.formats import Source, read
started, messages, skipped = perf_counter(), 0, 0
for path in sorted(Path(sys.argv[1]).rglob("*.jsonl"))[: int(sys.argv[2])]:
    source = Source(path)
    messages += sum(len(conversation.items) for conversation in read(source))
    skipped += len(source.skipped)
status = Path("/proc/self/status").read_text()
peak = next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
print(perf_counter() - started, messages, skipped, peak)
"""


def measure(*, quick: bool) -> Part:
    megabytes = int(os.environ.get("MINUTEBOOK_BENCH_MB") or (50 if quick else 1_000))
    with tempfile.TemporaryDirectory() as folder:
        sizes = [_write_session(Path(folder), number) for number in range(max(megabytes // SESSION_MB, 20))]
        progress(f"formats: reading {sum(sizes) / 1e6:,.0f} MB")
        small = _read(folder, len(sizes) // 20)
        large = _read(folder, len(sizes))
    part = Part()
    table = Table("Claude Code sessions, read one after the other", ["files", "MB", "messages", "time", "peak memory"])
    for count, (seconds, messages, _, peak) in ((len(sizes) // 20, small), (len(sizes), large)):
        megabytes_read = f"{sum(sizes[:count]) / 1e6:,.0f}"
        table.rows.append([f"{count:,}", megabytes_read, f"{messages:,.0f}", time_of(seconds), f"{peak / 1e6:,.0f} MB"])
    part.tables.append(table)
    growth = large[3] - small[3]
    part.targets.append(
        Target("reading a folder needs constant memory", f"{growth / 1e6:+.0f} MB", growth < MAX_GROWTH)
    )
    part.targets.append(Target("every line is understood", f"{large[2]:.0f} skipped", large[2] == 0))
    part.figures["formats"] = {"seconds": large[0], "bytes": sum(sizes), "peak_bytes": large[3]}
    return part


def _write_session(folder: Path, number: int) -> int:
    """Write one session of about `SESSION_MB`; return its size in bytes."""
    path = folder / f"project-{number % 10}" / f"session-{number}.jsonl"
    path.parent.mkdir(exist_ok=True)
    parent, count = None, 0
    with path.open("w") as out:
        messages = to_anthropic(coding_session(number % 50, turns=4)).messages
        while out.tell() < SESSION_MB * 1_000_000:
            for message in messages:
                count += 1
                line = {
                    "parentUuid": parent,
                    "isSidechain": False,
                    "sessionId": f"session-{number}",
                    "type": message["role"],
                    "message": {**message, **({"id": f"msg_{count}"} if message["role"] == "assistant" else {})},
                    "uuid": f"u{count}",
                    "timestamp": "2026-03-01T10:00:00Z",
                }
                parent = line["uuid"]
                out.write(json.dumps(line) + "\n")
    return path.stat().st_size


def _read(folder: str, count: int) -> tuple[float, float, float, float]:
    """Seconds, messages, skipped lines and peak memory of a new process that reads the first files."""
    done = subprocess.run([sys.executable, "-c", READ, folder, str(count)], capture_output=True, text=True, check=True)
    seconds, messages, skipped, peak = map(float, done.stdout.split())
    return seconds, messages, skipped, peak
