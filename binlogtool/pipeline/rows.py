"""Records as rows: one table layout for every format, as Arrow record batches.

Layout version: `binlogtool/rows/1`; within a major version columns are only ever added. A byte range that could not be
read is a row too: type DAMAGE, no record number, the reason in `findings`. So the rows of a file account for all of its
bytes except those that are not damage: its unused end, and a record that a crash left unfinished in the last file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from binlogtool.errors import UsageError
from binlogtool.findings import Finding, make_finding
from binlogtool.log.body_json import encode_bodies, findings_to_json
from binlogtool.log.records import RecordBlock
from binlogtool.pipeline.nativerows import CompiledRows

LAYOUT_VERSION = "binlogtool/rows/1"
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

_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema([pa.field(name, _ARROW_TYPES[kind]) for name, kind in COLUMNS])
DDL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)

RAW_COLUMN = "raw"
"""Optional column: the bytes of the record in its own address space."""

PAYLOADS = ("decoded", "raw", "none")

_INT64 = range(-(1 << 63), 1 << 63)


class RowLayout(msgspec.Struct, frozen=True):
    """Columns of the rows, in order. decode: how far records are decoded for them (full, header, frame)."""

    names: tuple[str, ...] = tuple(name for name, _ in COLUMNS)
    decode: str = "full"

    @property
    def read_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return pa.schema([_RAW_FIELD if name == RAW_COLUMN else SCHEMA.field(name) for name in self.names])

    @property
    def ddl(self) -> str:
        """Spark DDL of the rows."""
        kinds = {**dict(COLUMNS), RAW_COLUMN: "binary"}
        return ", ".join(f"`{name}` {kinds[name]}" for name in self.names)

    @property
    def raw(self) -> bool:
        """True if the bytes of the records are included."""
        return RAW_COLUMN in self.names

    def compiled_builder(self) -> CompiledRows | None:
        """Return the compiled builder of these rows; None if raw bytes are included, which it does not support."""
        return None if self.raw else CompiledRows(self.read_schema, MAX_BATCH_ROWS)

    def build_batches(self, block: RecordBlock) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block; see `block_batches`."""
        return build_block_batches(block, layout=self)

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return one DAMAGE row; see `damage_batch`."""
        return build_damage_row(file, format, damage_finding, self)


_RAW_FIELD = pa.field(RAW_COLUMN, pa.binary())
DEFAULT_LAYOUT = RowLayout()


def create_layout(columns: Sequence[str] = (), payload: str = "decoded") -> RowLayout:
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
    available = [RAW_COLUMN if name == "body" and payload == RAW_COLUMN else name for name, _ in COLUMNS]
    if payload == "none":
        available.remove("body")
    names = tuple(columns) or tuple(available)
    for name in names:
        if name not in available:
            raise UsageError(f"columns: {name!r} is none of {', '.join(available)}")
    if len(set(names)) < len(names):
        raise UsageError("columns: a name stands there twice")
    full = payload == "decoded" and not {"body", "findings"}.isdisjoint(names)
    return RowLayout(names, "full" if full else "header" if "extras" in names else "frame")


def build_block_batches(
    block: RecordBlock, max_rows: int = MAX_BATCH_ROWS, layout: RowLayout = DEFAULT_LAYOUT
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a block, in its order, in batches of at most `max_rows`."""
    for start in range(0, len(block), max_rows):
        yield _build_batch(block, range(start, min(start + max_rows, len(block))), layout)


def build_damage_row(
    file: str, format: str, damage_finding: Finding, layout: RowLayout = DEFAULT_LAYOUT
) -> pa.RecordBatch:
    """Return a batch of one DAMAGE row."""
    row: dict[str, list[Any]] = {
        "file": [printable_path(file)],
        "format": [format],
        "offset": [damage_finding.offset],
        "size": [damage_finding.length],
        "type": [DAMAGE],
        "findings": [findings_to_json([damage_finding])],
    }
    return pa.RecordBatch.from_pydict({name: row.get(name, [None]) for name in layout.names}, schema=layout.read_schema)


def _build_batch(block: RecordBlock, rows: range, layout: RowLayout) -> pa.RecordBatch:
    row_slice, envelope = slice(rows.start, rows.stop), block.envelope
    findings = {i: block.findings[i] for i in rows if i in block.findings}
    oversized = _OversizedNumbers(block, rows, findings)
    numbers = {
        name: oversized.replace_oversized(name, getattr(envelope, name)[row_slice])
        for name in _NUMBER_COLUMNS
        if name in layout.names
    }
    column_builders: dict[str, Callable[[], Any]] = {
        "file": lambda: [printable_path(block.file)] * len(rows),
        "format": lambda: [block.format] * len(rows),
        "record": lambda: [int(n) for n in block.record[row_slice]],
        "offset": lambda: [int(n) for n in block.offset[row_slice]],
        "size": lambda: [int(n) for n in block.size[row_slice]],
        "inner_offset": lambda: [i and i.offset for i in block.inner[row_slice]],
        "inner_size": lambda: [i and i.size for i in block.inner[row_slice]],
        "type": lambda: envelope.type[row_slice],
        "object": lambda: envelope.object[row_slice],
        "txn": lambda: [None if t is None else str(t) for t in envelope.txn[row_slice]],
        "checksum_algorithm": lambda: [c and c.algorithm for c in block.checksum[row_slice]],
        "checksum_stored": lambda: [c and f"{c.stored:08x}" for c in block.checksum[row_slice]],
        "checksum_computed": lambda: [c and f"{c.computed:08x}" for c in block.checksum[row_slice]],
        "checksum_ok": lambda: [c and c.ok for c in block.checksum[row_slice]],
        "body": lambda: encode_bodies(block.bodies[row_slice]) if block.bodies else [None] * len(rows),
        "extras": lambda: encode_bodies(block.extras[row_slice]) if block.extras else [None] * len(rows),
        "findings": lambda: [findings_to_json(findings.get(i, ())) for i in rows],
        RAW_COLUMN: lambda: None if block.raw is None else block.raw[row_slice],
    }
    columns = {name: numbers[name] if name in numbers else column_builders[name]() for name in layout.names}
    return pa.RecordBatch.from_pydict(columns, schema=layout.read_schema)


_NUMBER_COLUMNS = ("seq", "time", "origin")


def printable_path(path: str) -> str:
    """Return a path as text; bytes that are not UTF-8 are escaped."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


class _OversizedNumbers:
    """Replaces numbers that a signed 64-bit column cannot hold by null, and adds a finding with the number to the
    row.
    """

    def __init__(self, block: RecordBlock, rows: range, findings: dict[int, tuple[Finding, ...]]) -> None:
        self._block = block
        self._rows = rows
        self._findings = findings

    def replace_oversized(self, name: str, values: Sequence[int | None]) -> list[int | None]:
        """Return `values` with null for those out of range."""
        fits = [value is None or value in _INT64 for value in values]
        if all(fits):
            return list(values)
        for i, fits_column, value in zip(self._rows, fits, values, strict=True):
            if not fits_column:
                self._findings[i] = (*self._findings.get(i, ()), self._oversized_finding(i, name, value))
        return [value if fine else None for fine, value in zip(fits, values, strict=True)]

    def _oversized_finding(self, i: int, name: str, value: int | None) -> Finding:
        offset, size = int(self._block.offset[i]), int(self._block.size[i])
        message = f"{name} {value} does not fit a signed 64-bit column"
        number = int(self._block.record[i])
        return make_finding("count-out-of-bounds", offset, size, message, record=number, column=name, value=value)
