"""Goals R2 and R3: whatever a file asks for, time and memory stay bounded and there is no traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from tests.harness.hostile import CASES, HEAD, case

pytestmark = pytest.mark.slow

MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent.parent
ADDRESS_SPACE = 1536 * MIB
PEAK = 256 * MIB
SMALL_PEAK = 64 * MIB
STATUSES = {0, 1, 3, 5, 6}

RUNNER = """
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
sys.argv = ["binlogtool", *sys.argv[2:]]
import binlogtool.cli, binlogtool.recovery.verify
before = peak()
try:
    status = binlogtool.cli.main()
except SystemExit as end:
    status = end.code
used = resource.getrusage(resource.RUSAGE_SELF)
sys.stdout.flush()
print(json.dumps([status or 0, used.ru_utime + used.ru_stime, peak(), before]), file=sys.stderr)
"""


class Run(NamedTuple):
    """One command. seconds of CPU, start-up included; peak and base (before the work) in bytes."""

    status: int
    seconds: float
    peak: int
    base: int
    errors: str


def run(*words: str, data: bytes | None = None) -> Run:
    """The command line, in a process with bounded address space."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(ADDRESS_SPACE), *words],
        input=data if data is not None else b"", env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, timeout=200, check=False,
    )  # fmt: skip
    *errors, last = done.stderr.decode(errors="replace").splitlines() or [""]
    assert last.startswith("["), f"{words}: died with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}"
    status, seconds, peak, base = json.loads(last)
    return Run(status, seconds, peak, base, "\n".join(errors))


COMMANDS = (
    ("verify",),
    ("verify", "--depth", "checksum"),
    ("dump", "-O", "jsonl"),
    ("hexdump-annotate",),
    ("truncate-to-durable",),
)
UNPACKED = {"1 GiB": 256, "200 MiB": 200, "60 MiB": 60}
"""What a case unpacks, in MiB: never more than the default of --max-inflate."""


def budget(command: tuple[str, ...], name: str, size: int) -> tuple[float, int]:
    """Seconds, and bytes of memory above the interpreter with its modules.

    What is unpacked counts as if it stood in the file. The annotated hexdump is bounded by its own promise of 30,000
    drawn fields in a second, one for each byte at worst, and by the memory ceiling.
    """
    unpacked = next((amount for words, amount in UNPACKED.items() if words in name), 0) * MIB
    seconds = 1 + 20 * (size + unpacked) / (100 * MIB)
    if command[0] == "hexdump-annotate":
        return seconds + min(size, MIB) / 30_000, PEAK
    return seconds, PEAK if size + unpacked > MIB else SMALL_PEAK


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("format", sorted(CASES))
def test_no_hostile_file_takes_more_than_its_time_and_memory(
    tmp_path: Path, format: str, command: tuple[str, ...]
) -> None:
    wrong, longest, largest = [], 0.0, 0
    for name in CASES[format]:
        data = case(format, name)
        path = tmp_path / ("00000000000000000000.xlog" if format == "tarantool" else "transaction.log")
        path.write_bytes(data)
        seen = run(*command, "--format", format, str(path))
        longest, largest = max(longest, seen.seconds), max(largest, seen.peak)
        seconds, above = budget(command, name, len(data))
        memory = max(PEAK, seen.base) if above == PEAK else seen.base + above
        told = f"{name} ({len(data):,} B): status {seen.status}, {seen.seconds:.2f} s, {seen.peak / MIB:.0f} MiB"
        if "Traceback" in seen.errors or seen.status not in STATUSES:
            wrong.append(f"{told}: {seen.errors[-300:]}")
        if seen.seconds > seconds:
            wrong.append(f"{told}: longer than {seconds:.1f} s")
        if seen.peak > memory:
            wrong.append(f"{told}: more than {memory / MIB:.0f} MiB")
    count = len(CASES[format])
    figures = f"{count} files; longest {longest:.2f} s, largest {largest / MIB:.0f} MiB"
    print(f"\nR2, R3 {format} {' '.join(command)}: {figures}")
    assert not wrong, "\n".join(wrong)


STREAMS = {
    "nothing": b"",
    "half a text header": HEAD[:40],
    "a header and half a block": HEAD + case("tarantool", "30,000 rows without a body")[len(HEAD) :][:1000],
    "gzip cut short": gzip.compress(HEAD + bytes(100_000))[:-9],
    "gzip with a wrong checksum": gzip.compress(HEAD + bytes(1000))[:-8] + bytes(8),
    "zstd cut short": zstandard.compress(HEAD + os.urandom(100_000))[:-900],
    "gzip bomb": gzip.compress(HEAD + bytes(100 * MIB)),
    "zstd bomb": zstandard.compress(HEAD + bytes(100 * MIB)),
}


@pytest.mark.parametrize("command", COMMANDS[:3], ids=" ".join)
def test_standard_input_that_breaks_off_is_told_in_a_line_or_a_finding(command: tuple[str, ...]) -> None:
    wrong = []
    for name, data in STREAMS.items():
        seen = run(*command, "--format", "tarantool", "-", data=data)
        if "Traceback" in seen.errors or seen.status not in STATUSES | {4} or seen.peak > PEAK:
            wrong.append(f"{name}: {seen}")
        if seen.seconds > 1 + 20 * (100 if "bomb" in name else len(data) / MIB) / 100:
            wrong.append(f"{name}: {seen}")
    print(f"\nR2, R3 {' '.join(command)} -: {len(STREAMS)} broken streams")
    assert not wrong, "\n".join(wrong)
