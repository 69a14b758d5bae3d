"""Records as rows: one table layout for every format, as Arrow record batches.

Layout version: `binlogtool/rows/1`; within a major version columns are only ever added. A stretch that could not be
read is a row too: type DAMAGE, no record number, the reason in `findings`. So a file's rows account for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from binlogtool.findings import Finding, finding
from binlogtool.log.records import Block
from binlogtool.pipeline.jsontext import body_text, findings_text

VERSION = "binlogtool/rows/1"
DAMAGE = "DAMAGE"
MAX_BATCH_ROWS = 8192

COLUMNS: tuple[tuple[str, str], ...] = (
    ("file", "string"),
    ("format", "string"),
    ("record", "bigint"),
    ("offset", "bigint"),
    ("size", "bigint"),
    ("inner_offset", "bigint"),
    ("inner_size", "bigint"),
    ("type", "string"),
    ("seq", "bigint"),
    ("time", "timestamp"),
    ("object", "string"),
    ("origin", "bigint"),
    ("txn", "string"),
    ("checksum_algorithm", "string"),
    ("checksum_stored", "string"),
    ("checksum_computed", "string"),
    ("checksum_ok", "boolean"),
    ("body", "string"),
    ("extras", "string"),
    ("findings", "string"),
)
"""Name and Spark SQL type. record: null for DAMAGE rows. checksums: hexadecimal. body, extras, findings: JSON text."""

_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema([pa.field(name, _ARROW[kind]) for name, kind in COLUMNS])
DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)

_INT64 = range(-(1 << 63), 1 << 63)


def block_batches(block: Block, max_rows: int = MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of a block, in its order, in batches that Spark can take."""
    for start in range(0, len(block), max_rows):
        yield _batch(block, range(start, min(start + max_rows, len(block))))


def damage_batch(file: str, format: str, found: Finding) -> pa.RecordBatch:
    """One DAMAGE row."""
    row: dict[str, list[Any]] = {name: [None] for name, _ in COLUMNS}
    row |= {
        "file": [file_name(file)],
        "format": [format],
        "offset": [found.offset],
        "size": [found.length],
        "type": [DAMAGE],
        "findings": [findings_text([found])],
    }
    return pa.RecordBatch.from_pydict(row, schema=SCHEMA)


def _batch(block: Block, rows: range) -> pa.RecordBatch:
    pick, envelope = slice(rows.start, rows.stop), block.envelope
    inner, checks = block.inner[pick], block.checksum[pick]
    findings = {i: block.findings[i] for i in rows if i in block.findings}
    too_big = _Oversized(block, rows, findings)
    columns: dict[str, Any] = {
        "file": [file_name(block.file)] * len(rows),
        "format": [block.format] * len(rows),
        "record": [int(n) for n in block.record[pick]],
        "offset": [int(n) for n in block.offset[pick]],
        "size": [int(n) for n in block.size[pick]],
        "inner_offset": [i and i.offset for i in inner],
        "inner_size": [i and i.size for i in inner],
        "type": envelope.type[pick],
        "seq": too_big.checked("seq", envelope.seq[pick]),
        "time": too_big.checked("time", envelope.time[pick]),
        "object": envelope.object[pick],
        "origin": too_big.checked("origin", envelope.origin[pick]),
        "txn": [None if t is None else str(t) for t in envelope.txn[pick]],
        "checksum_algorithm": [c and c.algorithm for c in checks],
        "checksum_stored": [c and f"{c.stored:08x}" for c in checks],
        "checksum_computed": [c and f"{c.computed:08x}" for c in checks],
        "checksum_ok": [c and c.ok for c in checks],
        "body": [body_text(body) for body in block.bodies[pick]] if block.bodies else [None] * len(rows),
        "extras": [body_text(extra) for extra in block.extras[pick]] if block.extras else [None] * len(rows),
        "findings": [findings_text(findings.get(i, ())) for i in rows],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def file_name(path: str) -> str:
    """A path as text: bytes that are no UTF-8 show as escapes."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


class _Oversized:
    """Numbers that a signed 64-bit column cannot hold: the cell is null, and a finding of the row has the number."""

    def __init__(self, block: Block, rows: range, findings: dict[int, tuple[Finding, ...]]) -> None:
        self._block = block
        self._rows = rows
        self._findings = findings

    def checked(self, name: str, values: Sequence[int | None]) -> list[int | None]:
        """`values` with null for those out of range."""
        fits = [value is None or value in _INT64 for value in values]
        if all(fits):
            return list(values)
        for i, fine, value in zip(self._rows, fits, values, strict=True):
            if not fine:
                self._findings[i] = (*self._findings.get(i, ()), self._finding(i, name, value))
        return [value if fine else None for fine, value in zip(fits, values, strict=True)]

    def _finding(self, i: int, name: str, value: int | None) -> Finding:
        offset, size = int(self._block.offset[i]), int(self._block.size[i])
        message = f"{name} {value} does not fit a signed 64-bit column"
        number = int(self._block.record[i])
        return finding("count-out-of-bounds", offset, size, message, record=number, column=name, value=value)
