"""Records as rows: one table layout for every format, as Arrow record batches.

Layout version: `binlogtool/rows/1`; within a major version columns are only ever added. A byte range that could not
be
read is a row too: type DAMAGE, no record number, the reason in `findings`. So the rows of a file account for all of
its
bytes except those that are not damage: its unused end, and a record that a crash left unfinished in the last file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, finding
from binlogtool.log.body_json import body_texts, findings_text
from binlogtool.log.records import Block
from binlogtool.pipeline.nativerows import NativeRows

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

RAW = "raw"
"""Optional column: the bytes of the record in its own address space."""

PAYLOADS = ("decoded", "raw", "none")

_INT64 = range(-(1 << 63), 1 << 63)


class View(msgspec.Struct, frozen=True):
    """Columns of the rows, in order. decode: how far records are decoded for them (full, header, frame)."""

    names: tuple[str, ...] = tuple(name for name, _ in COLUMNS)
    decode: str = "full"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return pa.schema([_RAW_FIELD if name == RAW else SCHEMA.field(name) for name in self.names])

    @property
    def ddl(self) -> str:
        """Spark DDL of the rows."""
        kinds = {**dict(COLUMNS), RAW: "binary"}
        return ", ".join(f"`{name}` {kinds[name]}" for name in self.names)

    @property
    def raw(self) -> bool:
        """True if the bytes of the records are included."""
        return RAW in self.names

    def native(self) -> NativeRows | None:
        """Return the compiled builder of these rows; None if raw bytes are included, which it does not support."""
        return None if self.raw else NativeRows(self.schema, MAX_BATCH_ROWS)

    def batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; see `block_batches`."""
        return block_batches(block, shown=self)

    def damage(self, file: str, format: str, found: Finding) -> pa.RecordBatch:
        """Return one DAMAGE row; see `damage_batch`."""
        return damage_batch(file, format, found, self)


_RAW_FIELD = pa.field(RAW, pa.binary())
ALL = View()


def view(columns: Sequence[str] = (), payload: str = "decoded") -> View:
    """Return the layout with given columns.

    Args:
        columns: names in order; () = all.
        payload: decoded = the decoded body, raw = the record's bytes in its place, none = neither.

    Errors in a body are only found if `body` or `findings` are included and the payload is decoded.

    Raises:
        UsageError: there is no such column, or it is named twice.
    """
    if payload not in PAYLOADS:
        raise UsageError(f"payload {payload!r}: choose one of {', '.join(PAYLOADS)}")
    known = [RAW if name == "body" and payload == RAW else name for name, _ in COLUMNS]
    if payload == "none":
        known.remove("body")
    names = tuple(columns) or tuple(known)
    for name in names:
        if name not in known:
            raise UsageError(f"columns: {name!r} is none of {', '.join(known)}")
    if len(set(names)) < len(names):
        raise UsageError("columns: a name stands there twice")
    full = payload == "decoded" and not {"body", "findings"}.isdisjoint(names)
    return View(names, "full" if full else "header" if "extras" in names else "frame")


def block_batches(block: Block, max_rows: int = MAX_BATCH_ROWS, shown: View = ALL) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a block, in its order, in batches of at most `max_rows`."""
    for start in range(0, len(block), max_rows):
        yield _batch(block, range(start, min(start + max_rows, len(block))), shown)


def damage_batch(file: str, format: str, found: Finding, shown: View = ALL) -> pa.RecordBatch:
    """Return a batch of one DAMAGE row."""
    row: dict[str, list[Any]] = {
        "file": [file_name(file)],
        "format": [format],
        "offset": [found.offset],
        "size": [found.length],
        "type": [DAMAGE],
        "findings": [findings_text([found])],
    }
    return pa.RecordBatch.from_pydict({name: row.get(name, [None]) for name in shown.names}, schema=shown.schema)


def _batch(block: Block, rows: range, shown: View) -> pa.RecordBatch:
    pick, envelope = slice(rows.start, rows.stop), block.envelope
    findings = {i: block.findings[i] for i in rows if i in block.findings}
    too_big = _Oversized(block, rows, findings)
    numbers = {name: too_big.checked(name, getattr(envelope, name)[pick]) for name in _NUMBERS if name in shown.names}
    made: dict[str, Callable[[], Any]] = {
        "file": lambda: [file_name(block.file)] * len(rows),
        "format": lambda: [block.format] * len(rows),
        "record": lambda: [int(n) for n in block.record[pick]],
        "offset": lambda: [int(n) for n in block.offset[pick]],
        "size": lambda: [int(n) for n in block.size[pick]],
        "inner_offset": lambda: [i and i.offset for i in block.inner[pick]],
        "inner_size": lambda: [i and i.size for i in block.inner[pick]],
        "type": lambda: envelope.type[pick],
        "object": lambda: envelope.object[pick],
        "txn": lambda: [None if t is None else str(t) for t in envelope.txn[pick]],
        "checksum_algorithm": lambda: [c and c.algorithm for c in block.checksum[pick]],
        "checksum_stored": lambda: [c and f"{c.stored:08x}" for c in block.checksum[pick]],
        "checksum_computed": lambda: [c and f"{c.computed:08x}" for c in block.checksum[pick]],
        "checksum_ok": lambda: [c and c.ok for c in block.checksum[pick]],
        "body": lambda: body_texts(block.bodies[pick]) if block.bodies else [None] * len(rows),
        "extras": lambda: body_texts(block.extras[pick]) if block.extras else [None] * len(rows),
        "findings": lambda: [findings_text(findings.get(i, ())) for i in rows],
        RAW: lambda: None if block.raw is None else block.raw[pick],
    }
    columns = {name: numbers[name] if name in numbers else made[name]() for name in shown.names}
    return pa.RecordBatch.from_pydict(columns, schema=shown.schema)


_NUMBERS = ("seq", "time", "origin")


def file_name(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


class _Oversized:
    """Replaces numbers that a signed 64-bit column cannot hold by null, and adds a finding with the number to the
    row.
    """

    def __init__(self, block: Block, rows: range, findings: dict[int, tuple[Finding, ...]]) -> None:
        self._block = block
        self._rows = rows
        self._findings = findings

    def checked(self, name: str, values: Sequence[int | None]) -> list[int | None]:
        """Return `values` with null for those out of range."""
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
