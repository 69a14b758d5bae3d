"""A plain walk over entries with construct: what the tests use in place of the engine."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from binlogtool.format_api.format import FileTail
from binlogtool.format_api.layout import Batch, ColumnTable
from binlogtool.formats.drizzle.schema import ENTRY
from binlogtool.formats.drizzle.validate import DrizzleValidator

CHECKSUM = {True: 1, None: 2}


def entries(data: bytes) -> Iterator[tuple[int, Any]]:
    """Offset and parsed entry, up to the first one that is not good."""
    p = 0
    while p < len(data):
        entry = ENTRY.parse(data[p:])
        assert entry.checksum.ok is not False
        yield p, entry
        p += 12 + entry.length


def batch(data: bytes, first_record: int = 0) -> Batch:
    """All entries of a file as one batch."""
    rows = [
        {
            "offset": p,
            "end": p + 12 + e.length,
            "checksum": CHECKSUM[e.checksum.ok],
            "type": e.type,
            "length": e.length,
            "message_start": p + e.message_start,
            "message_end": p + e.message_end,
            "crc32": e.crc32,
        }
        for p, e in entries(data)
    ]
    names = list(rows[0]) if rows else ["offset", "end", "checksum", "type", "message_start", "message_end"]
    frames = ColumnTable(len(rows), {name: [row[name] for row in rows] for name in names})
    view = memoryview(data)
    return Batch(0, view, frames, view, None, (), (), first_record, first_record)


def judge(data: bytes) -> tuple[list[Any], Any]:
    """Findings and verdict of an undamaged chain of entries."""
    judged = DrizzleValidator()
    found = list(judged.validate_batch(batch(data)))
    verdict = judged.finish(FileTail(len(data), len(data), None, None))
    return [*found, *verdict.findings], verdict


def pack(message: bytes, checksum: bool = True, kind: int = 1) -> bytes:
    """One entry, made by hand."""
    stored = zlib.crc32(message) if checksum else 0
    return struct.pack("<II", kind, len(message)) + message + struct.pack("<I", stored)


def log_files(corpus: Path) -> list[Path]:
    """The intact files of the corpus, generated and third-party."""
    return sorted((corpus / "drizzle" / "generated").glob("*.log")) + sorted(
        (corpus / "drizzle" / "third-party").glob("*.log")
    )
