"""Intact logs of the corpus that may be cut anywhere, and where their records end by independent means."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from binlogtool.findings import Severity
from binlogtool.repair.system_calls import SystemCalls
from tests.harness import oracle
from tests.harness.samples import samples
from tests.verify_bytes import verify_bytes

LIMIT = 64 * 1024
FORMATS = ("tarantool", "drizzle", "mysql-binlog", "manticore", "sphinx", "eblob")
"""Pages of .ibb files are not cut but overwritten with zeros; their tests are elsewhere."""

_EBLOB_TRACES = ("{}.binlog.jsonl", "{}.read.jsonl")


class Log(NamedTuple):
    """format: as `--format` takes it. head: where records can begin. ends: of the records, in order. durable: for each
    number of whole records, from none on, the place up to which the log holds.
    """

    name: str
    format: str
    data: bytes
    head: int
    ends: tuple[int, ...]
    durable: tuple[int, ...]

    def end_at(self, cut: int) -> int:
        """What of the first `cut` bytes is durable."""
        if cut < self.head:
            return 0
        return self.durable[bisect.bisect_right(self.ends, cut)]


class Quick(SystemCalls):
    """The real calls on a disk in memory, without those that only a crash could tell from nothing."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_directory(self, path: str) -> None:
        pass

    def list_holders(self, status: object) -> list[str]:
        return []


def logs(corpus: Path, format: str, limit: int = LIMIT) -> Iterator[Log]:
    """Every intact log of at most `limit` bytes, the smallest first, each content once."""
    made = {"manticore": _manticore, "sphinx": _manticore, "eblob": _eblob}.get(format, _walked)
    seen: set[bytes] = set()
    for log in sorted(made(corpus, format, limit), key=lambda log: (len(log.data), log.name)):
        if log.data in seen or not log.ends:
            continue
        seen.add(log.data)
        report = verify_bytes(Path(log.name).name, log.data, format=log.format)
        if all(f.severity < Severity.ERROR for f in report.findings):
            yield log


def _walked(corpus: Path, format: str, limit: int) -> Iterator[Log]:
    """By the harness' own reader."""
    for sample in samples(corpus, format, limit):
        walk = sample.walk
        if walk.head is None or not walk.clean or sample.name.startswith("damaged"):
            continue
        ends = tuple(frame.end for frame in walk.frames)
        yield Log(sample.name, format, sample.data, walk.head, ends, tuple(oracle.durable_ends(walk)))


def _manticore(corpus: Path, format: str, limit: int) -> Iterator[Log]:
    """By the independent decoder whose output is beside the samples; the head of a file has 8 bytes."""
    for listed in sorted((corpus / format / "generated").rglob("expected.jsonl")):
        if "damaged" in listed.parts:
            continue
        ends: dict[str, list[int]] = {}
        for line in listed.read_text().splitlines():
            one = json.loads(line)
            ends.setdefault(one["file"], []).append(one["offset"] + one["size"])
        for name, own in ends.items():
            yield from _plain(listed.parent / name, "manticore", 8, own, limit)


def _eblob(corpus: Path, format: str, limit: int) -> Iterator[Log]:
    """By what the real library delivered when it read the file; the records begin behind 256 bytes."""
    root = corpus / format / "generated"
    for path in sorted(root.glob("*.binlog")):
        traces = [root / "oracle" / name.format(path.stem) for name in _EBLOB_TRACES]
        for trace in [one for one in traces if one.exists()][:1]:
            lines = [json.loads(line) for line in trace.read_text().splitlines() if line.startswith("{")]
            starts = [line["offset"] for line in lines if "offset" in line]
            stopped = [line["stopped_at"] for line in lines if "stopped_at" in line]
            yield from _plain(path, format, 256, [*starts[1:], *stopped], limit)


def _plain(path: Path, format: str, head: int, ends: list[int], limit: int) -> Iterator[Log]:
    if path.is_file() and path.stat().st_size <= limit:
        yield Log(str(path), format, path.read_bytes(), head, tuple(ends), (head, *ends))
