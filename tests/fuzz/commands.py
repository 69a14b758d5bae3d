"""Commands over hostile content, in this process: how each ends, what both backends print, and how much it takes."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import sanitizers
from tests.golden.runner import NORMALISED

SECONDS = 10.0
"""Seconds of CPU that one command may take over a file of at most 64 KiB."""
MAX_MEMORY_MIB = 64
RESERVE_MIB = 48
"""What a command may take beside `--max-memory`: the program's own part, and what libraries load at their first use."""
INTERNAL, OUT_OF_MEMORY = 70, 6

WHERE = (
    "size > 40",
    "object = 't.t' or body.id >= 0",
    "after.a > 5 or before.`id` is not null",
    "type like '%ROWS%' and not (time < time '2026-01-01T00:00:00Z')",
    "body.tuple[0] = 1 or body.key[0] ~ '*1*'",
    "txn is null or seq in (1, 2, 3)",
)

CALLS = (
    *("verify -O json", "verify", "verify -O json --depth payload", "verify --report html=out/v.html --report github"),
    *("dump", "dump -O jsonl", "dump -O jsonl --on-damage skip", "dump -O jsonl --on-damage salvage"),
    *("dump -O json --decode header --on-damage skip", "dump -O csv --on-damage skip", "dump --hex -n 9"),
    *("dump -O table -n 20 --on-damage skip", "dump -O sql --on-damage skip", "dump -O jsonl --bytes base64 --tail 4"),
    *("dump -O sql --rows statements --comments --on-damage skip", "dump -O jsonl --bytes base64 --on-damage skip"),
    *("dump --fields type,seq,object,time,body --on-damage skip", "dump -O csv --csv-safe --fields object,body -n 50"),
    *("hexdump-annotate -n 12 --on-damage skip", "hexdump-annotate -n 12 -O json", "hexdump-annotate -n 4 -O html"),
    *("hexdump-annotate --damage-only", "hexdump-annotate --record 3 -O svg", "truncate-to-durable -O json"),
    *("replay-dry-run -O json --digest", "replay-dry-run --policy force", "replay-dry-run -O jsonl --policy strict"),
    *("diagnose -O json", "stats -O json --on-damage skip", "stats --by type --bucket 1h -O csv --on-damage skip"),
    "convert --to jsonl -o out/rows.jsonl --on-damage skip",
    *(
        f"convert --to {form} --per-table --image {image} -o out/tables --on-damage skip"
        for form, image in (
            *(("csv", "before"), ("csv", "after"), ("json", "both")),
            *(("parquet", "both"), ("orc", "changes"), ("avro", "both")),
        )
    ),
    *("convert --to sql -o out/s.sql --on-damage skip", "flashback -o out/u.sql"),
    "flashback --rows statements -o out/u.sql",
    *(
        f"convert --to jsonl --envelope {name} -o out/messages.jsonl --on-damage skip"
        for name in ("debezium --provide-transaction-metadata --include-query --schema-messages", "maxwell", "canal")
    ),
    "convert --to jsonl --envelope debezium --decimals string --times connect -o out/m.jsonl --on-damage skip",
    "convert --to mysql-binlog -o out/bin --on-damage skip",
)  # fmt: skip
"""Options of each call; what is written lands in `out`."""

MYSQL_ONLY = re.compile(r"--envelope|flashback|--to sql |-O sql|mysql-binlog")
"""Calls that only logs of MySQL and MariaDB have something for."""

_INTERNAL = re.compile(r"internal error: (\w+): ([^;\n]*)")
_FRAME = re.compile(r'File "[^"]*?([\w]+/[\w]+\.py)", line (\d+)')
_TIMES = (*NORMALISED, (re.compile(rb'"backend": ?"\w+"'), b'"backend":""'), (re.compile(rb"[\d.]+ m?s\b"), b"<t>"))


class CallResult(NamedTuple):
    """How a call ended: its status, and what it printed and wrote, with times and the backend's name taken out."""

    status: int
    out: bytes
    err: bytes
    files: tuple[tuple[str, str], ...]
    seconds: float
    peak: int


class Fault(Exception):
    """A command broke a promise. kind: without numbers, equal for equal faults."""

    def __init__(self, kind: str, words: list[str], text: str) -> None:
        super().__init__(kind)
        self.kind, self.words, self.text = kind, words, text


def calls_for(format: str, rng: random.Random, count: int) -> list[str]:
    """Which calls an input goes through: `count` of all that have something for its format."""
    fits = [
        call for call in CALLS if format in ("mysql-binlog", "mariadb-innodb-binlog") or not MYSQL_ONLY.search(call)
    ]
    return rng.sample([*fits, *(f"stats -O json --on-damage skip --where {n}" for n in range(len(WHERE)))], count)


def build_command(call: str, path: Path, format: str, backend: str) -> list[str]:
    """The command line of a call."""
    words = call.split()
    if "--where" in words:
        words[-1] = WHERE[int(words[-1])]
    return [
        *words, "--format", format, "--backend", backend, "--max-memory", f"{MAX_MEMORY_MIB}MiB", "--no-config",
        str(path),
    ]  # fmt: skip


def check_call(call: str, path: Path, format: str, backends: tuple[str, ...]) -> list[int]:
    """Run a call with each backend; return the statuses.

    Raises:
        Fault: status 70, too slow, too much memory, or the backends differ.
    """
    results = []
    for backend in backends:
        words = build_command(call, path, format, backend)
        result = run(words)
        results.append(result)
        if result.status == INTERNAL or b"Traceback (most recent" in result.err:
            text = crash_text(result)
            raise Fault(internal_kind(text), words, text)
        if result.seconds > SECONDS:
            raise Fault(f"slow: {words[0]}", words, f"{result.seconds:.1f} s of CPU")
        if result.peak > (MAX_MEMORY_MIB + RESERVE_MIB) << 20 and not sanitizers.loaded():
            raise Fault(f"memory: {words[0]}", words, f"{result.peak >> 20} MiB more than before")
    first = results[0]
    for other in results[1:]:
        if OUT_OF_MEMORY in (first.status, other.status):
            continue  # how much an object takes differs by backend
        for name in ("status", "out", "err", "files"):
            if getattr(first, name) != getattr(other, name):
                text = difference(str(getattr(first, name)), str(getattr(other, name)))
                raise Fault(f"backends differ: {call.split(' --on')[0]}: {name}", words, text)
    return [result.status for result in results]


def difference(text: str, other: str) -> str:
    """Show both texts around their first difference."""
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    return f"at {at}\n  native: {text[max(0, at - 300) : at + 300]}\n  python: {other[max(0, at - 300) : at + 300]}"


def warm(path: Path, format: str) -> None:
    """Run each call once: what libraries load at their first use counts for no input."""
    for call in CALLS:
        run(build_command(call, path, format, "native"))


def crash_text(result: CallResult) -> str:
    """Return what a call with status 70 printed and the report that it wrote; remove the report."""
    text = result.err.decode(errors="replace")
    for name in re.findall(r"report it with (\S+)", text):
        text += Path(name).read_text()
        Path(name).unlink()
    return text


def internal_kind(text: str) -> str:
    """Status 70 as a kind: the exception, and where it was raised."""
    found, places = _INTERNAL.search(text), _FRAME.findall(text)
    words = re.sub(r"\d+", "N", found[2])[:60] if found else ""
    return f"status 70: {found[1] if found else '?'} at {':'.join(places[-1]) if places else '?'}: {words}"


def run(words: list[str]) -> CallResult:
    """Run a command line in this process, in the working directory, which gets an empty folder `out`."""
    from binlogtool.cli import main

    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    out, err, streams = io.BytesIO(), io.BytesIO(), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = (io.TextIOWrapper(stream, "utf-8", "backslashreplace") for stream in (out, err))
    reset_peak()
    base, began = memory("VmRSS"), time.process_time()
    try:
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        seconds, peak = time.process_time() - began, memory("VmHWM") - base
        texts = normalised(out.getvalue()), (err.getvalue() if status == INTERNAL else normalised(err.getvalue()))
    finally:
        sys.stdout, sys.stderr = streams
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return CallResult(status, *texts, tuple(output_hashes()), seconds, peak)


def normalised(data: bytes) -> bytes:
    """Without what differs from run to run."""
    for pattern, text in _TIMES:
        data = pattern.sub(text, data)
    return data


def output_hashes() -> Iterator[tuple[str, str]]:
    """The files of `out`, and what is in them."""
    for path in sorted(Path("out").rglob("*")):
        if path.is_file():
            data = normalised(path.read_bytes()) if path.suffix != ".avro" else b""  # which has random marks
            yield str(path), hashlib.sha256(data).hexdigest()[:16]


def reset_peak() -> None:
    """The peak of resident memory begins anew."""
    Path("/proc/self/clear_refs").write_text("5")


def memory(name: str) -> int:
    """Bytes of resident memory now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) << 10
