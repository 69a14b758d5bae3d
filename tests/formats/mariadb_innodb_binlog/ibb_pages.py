"""What can happen to a page of a file, and what must hold of every plan for the log afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import binlogtool
from binlogtool.findings import Finding, Severity
from binlogtool.repair.plan_types import RepairPolicy
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs

PLAIN = RepairPolicy()
Seen = Counter[tuple[str, int, int, str]]


def page_size(data: bytes) -> int:
    """As the header says."""
    return 1 << data[4]


def flipped(data: bytes, byte: int, bit: int) -> bytes:
    """One bit is another one."""
    return data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Each page with data and everything that can happen to it; a name, and the file."""
    size = page_size(data)
    for page in range(len(data) // size):
        if any(data[page * size : (page + 1) * size]):
            for name, changed in _of_page(data, page, size):
                if changed != data:
                    yield f"page {page}: {name}", changed


def _of_page(data: bytes, page: int, size: int) -> Iterator[tuple[str, bytes]]:
    start, end = page * size, (page + 1) * size
    before, here, behind = data[:start], data[start:end], data[end:]
    bit = 7 * page + 3
    places = {"chunk head": 1, "payload": size // 3, "near the end": size - 40, "checksum": size - 3}
    for name, at in {**places, **({} if page else {"head": 24, "checksum of the head": 509})}.items():
        yield f"bit flip, {name}", flipped(data, start + at, bit % 8)
    for cut in (512, 4096):
        if cut < size:
            yield f"torn at {cut}, zeros behind", before + here[:cut].ljust(size, b"\0") + behind
            old = data[start - size + cut : start] if page else bytes(size - cut)
            yield f"torn at {cut}, another page behind", before + here[:cut] + old + behind
    yield "zeroed", before + bytes(size) + behind
    yield "twice", before + here + here + behind
    yield "twice, in place of the next", before + here + here + behind[size:]
    yield "swapped with the next", before + behind[:size] + here + behind[size:]
    if page:
        yield "stale", before + before[-size:] + behind
    yield "cut here", before
    yield "cut inside", before + here[: size // 2 - 7]
    yield "cut before the checksum", before + here[:-4]


def _seen(folder: Path) -> Seen:
    """All records that are proven and say something of their own: file, place, size and type."""
    found = [one for one in logs.records(folder) if one.type not in ("GTID_STATE", "DUMMY")]
    return Counter((Path(one.file).name, one.offset, one.size, one.type) for one in found)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of the log."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if "binlogtool" not in path.name}


def _is_unclean(found: Finding) -> bool:
    """What no repair may leave. A file that the server flushed exactly at a page's end is sound, zeros and all."""
    tail = found.id in ("torn-tail", "garbage-tail", "zero-tail") and found.facts.get("diagnosis") != "flush-exact-end"
    return tail or found.severity is Severity.ERROR


def held(folder: Path, files: Mapping[str, bytes], asked: RepairPolicy = PLAIN, path: Path | None = None) -> str:
    """Plans, carries out, verifies, takes back; returns what came of it. path: what is named to the command."""
    path = path or logs.written(folder, files)
    plan = binlogtool.plan_truncate(path, format=logs.FORMAT, backend="python", policy=asked)
    if plan.refused:
        assert plan.reasons
        return "refused"
    if not plan.changes:
        assert not logs.errors(logs.verified(path)), "nothing to do, and it is not clean"
        return "nothing"
    proven = Counter() if asked.allow_discard_valid else _seen(folder)
    done = binlogtool.apply_plan(plan, format=logs.FORMAT, backend="python")
    report = logs.verified(path)
    assert not (left := [one for one in report.findings if _is_unclean(one)]), left
    assert not proven - _seen(folder), "a proven record is gone"
    assert done.undo is not None
    binlogtool.undo(done.undo)
    Path(done.undo).unlink()
    assert contents(folder) == files, "undo is not exact"
    return "changed"
