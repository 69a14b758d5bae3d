"""Build the rows of records as Arrow record batches.

Layout version: `binlogtool/rows/1`; within a major version columns are only ever added. A byte range that could not be
read is also a row: type DAMAGE, no record number, the reason in `findings`. So the rows of a file account for all of
its bytes except its unused end and a record that a crash left unfinished in the last file, which are no damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from binlogtool.core.decode_batches import BlockDecoder, CompiledRun, CompiledRunWriter
from binlogtool.core.divide_file import FilePart
from binlogtool.core.open_log import LogReader
from binlogtool.core.record_and_selection_types import FileFinding, RecordBlock, Selection
from binlogtool.core.record_filter import RecordRange
from binlogtool.errors import UsageError
from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.encode_json import encode_bodies, findings_to_json, to_json_bytes
from binlogtool.format_api.format import JsonLine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from binlogtool.schema.json_line_codegen import CellColumns, CellWriter


# --- Rows from compiled code ---


class CompiledRows:
    """Converter of record ranges to batches of rows by compiled code, where possible.

    schema: columns of the rows. max_rows: maximum number of rows in a batch.
    """

    def __init__(self, schema: pa.Schema, max_rows: int) -> None:
        self._schema = schema
        self._max_rows = max_rows
        self._compiled = CompiledRunWriter(self._create_writer)

    def build_parts(self, stretch: RecordRange, file: str) -> Iterator[pa.RecordBatch | RecordBlock]:
        """Yield the records of a range in order: finished batches, and blocks for the general path.

        file: file name in the rows.
        """
        for part in self._compiled.write_range(stretch):
            yield part if isinstance(part, RecordBlock) else self._build_batch(part, file)

    def _create_writer(self, line: JsonLine, maker: BlockDecoder) -> CellWriter:
        from binlogtool.schema.json_line_codegen import CellWriter

        body, extras = maker.decode == "full", "extras" in self._schema.names
        return CellWriter(line, maker.layout, to_json_bytes, self._max_rows, body=body, extras=extras)

    def _build_batch(self, run: CompiledRun[CellColumns], file: str) -> pa.RecordBatch:
        maker = run.record_range.decoder
        columns = ArrowColumns(run.data, file, maker.format.name, getattr(maker.layout.frame.checksum, "name", ""))
        return pa.RecordBatch.from_arrays([columns.build_column(one) for one in self._schema], schema=self._schema)


class ArrowColumns:
    """Converter of cells written by compiled code to Arrow columns."""

    def __init__(self, cells: CellColumns, file: str, format: str, algorithm: str) -> None:
        import numpy as np

        self._cells = cells
        self._valid = {name: np.asarray(valid) for name, valid in cells.valid.items()}
        self._constant = {"file": file, "format": format}
        self._algorithm = algorithm

    def build_column(self, field: pa.Field) -> pa.Array:
        """Return one column."""
        cells, name = self._cells, field.name
        if name in self._constant:
            return pa.repeat(self._constant[name], cells.count)
        if name == "checksum_ok":
            return self._build_array(field.type, name, self._validity_bitmap(name))
        if name in cells.numbers:
            return self._build_array(field.type, name, _copy_to_buffer(cells.numbers[name]))
        if name in cells.texts:
            return self._text_column(name)
        if name == "checksum_algorithm":
            return self._repeat_text_where_checksummed(self._algorithm)
        return pa.nulls(cells.count, field.type)

    def _text_column(self, name: str) -> pa.Array:
        import numpy as np

        data, ends = self._cells.texts[name]
        return self._build_array(
            pa.string(), name, _copy_to_buffer(np.asarray(ends).astype("int32")), _copy_to_buffer(data[: ends[-1]])
        )

    def _repeat_text_where_checksummed(self, text: str) -> pa.Array:
        """Return a column with a constant text in every row that has a checksum."""
        import numpy as np

        valid = self._valid["checksum_stored"]
        ends = np.concatenate([[0], np.cumsum(valid, dtype=np.int32) * len(text)]).astype(np.int32)
        data = pa.py_buffer(text.encode() * int(valid.sum()))
        return self._build_array(pa.string(), "checksum_stored", _copy_to_buffer(ends), data)

    def _build_array(self, kind: pa.DataType, name: str, *buffers: Any) -> pa.Array:
        valid = None if self._valid[name].all() else self._validity_bitmap(name)
        return pa.Array.from_buffers(kind, self._cells.count, [valid, *buffers])

    def _validity_bitmap(self, name: str) -> Any:
        import numpy as np

        return _copy_to_buffer(np.packbits(self._valid[name], bitorder="little"))


def _copy_to_buffer(values: memoryview | NDArray[np.generic]) -> Any:
    return pa.py_buffer(values.tobytes())


# --- Records as rows ---

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
"""(name, Spark SQL type). record: null for DAMAGE rows. checksums: hexadecimal. body, extras, findings: JSON text."""

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


OnFinding = Callable[[FileFinding], bool]
"""Receiver of findings; returns True if there must be a row for bytes that could not be read."""


class RowLayout(msgspec.Struct, frozen=True):
    """Columns of the rows, in order (`RecordRowReader`).

    decode: how far records are decoded for them (full, header, frame). reports_records: `read_batches` also reports
    the findings about records.
    """

    names: tuple[str, ...] = tuple(name for name, _ in COLUMNS)
    decode: str = "full"
    reports_records: bool = False

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

    def build_batches(self, block: RecordBlock, max_rows: int = MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block, in order, in batches of at most `max_rows`."""
        for start in range(0, len(block), max_rows):
            yield _build_batch(block, range(start, min(start + max_rows, len(block))), self)

    def read_batches(
        self, log: LogReader, name: str | None, selection: Selection, part: FilePart, on_finding: OnFinding
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part of a log; see `RecordRowReader`."""
        for item in self._read_parts(log, name, selection, part):
            if isinstance(item, RecordBlock):
                for finding in chain(*item.findings.values()) if self.reports_records else ():
                    on_finding(FileFinding(item.file, finding))
                yield from self.build_batches(item if name is None else replace(item, file=name))
            elif not isinstance(item, FileFinding):
                yield item
            elif on_finding(item):
                file = item.file if name is None else name
                yield self.build_damage_batch(file, log.files[0].format.name, item.finding)

    def _read_parts(
        self, log: LogReader, name: str | None, selection: Selection, part: FilePart
    ) -> Iterator[pa.RecordBatch | RecordBlock | FileFinding]:
        """Yield finished rows where compiled code can make them, otherwise blocks and findings."""
        compiled = self.compiled_builder()
        if compiled is None:
            yield from log.blocks(selection, decode=self.decode, raw=self.raw, part=part)
            return
        for item in log.record_ranges(selection, decode=self.decode, part=part):
            if isinstance(item, RecordRange):
                yield from compiled.build_parts(item, printable_path(item.decoder.file if name is None else name))
            else:
                yield item

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return a batch of one DAMAGE row."""
        row: dict[str, list[Any]] = {
            "file": [printable_path(file)], "format": [format], "offset": [damage_finding.offset],
            "size": [damage_finding.length], "type": [DAMAGE], "findings": [findings_to_json([damage_finding])],
        }  # fmt: skip
        return pa.RecordBatch.from_pydict({name: row.get(name, [None]) for name in self.names}, schema=self.read_schema)


_RAW_FIELD = pa.field(RAW_COLUMN, pa.binary())
DEFAULT_LAYOUT = RowLayout()


def create_layout(columns: Sequence[str] = (), payload: str = "decoded") -> RowLayout:
    """Return the layout of rows with these columns.

    Args:
        columns: names in order; () = all.
        payload: decoded = the decoded body, raw = the record's bytes instead, none = neither.

    Errors in a body are only found if `body` or `findings` are included and the payload is decoded.

    Raises:
        UsageError: a column does not exist, or is named twice.
    """
    if payload not in PAYLOADS:
        raise UsageError(f"payload {payload!r}: choose one of {', '.join(PAYLOADS)}")
    available = [RAW_COLUMN if name == "body" and payload == RAW_COLUMN else name for name, _ in COLUMNS]
    if payload == "none":
        available.remove("body")
    names = tuple(columns) or tuple(available)
    check_column_names(names, available)
    full = payload == "decoded" and not {"body", "findings"}.isdisjoint(names)
    return RowLayout(names, "full" if full else "header" if "extras" in names else "frame")


def check_column_names(names: Sequence[str], available: Sequence[str]) -> None:
    """Raise UsageError if a column does not exist, or is named twice."""
    for name in names:
        if name not in available:
            raise UsageError(f"columns: {name!r} is none of {', '.join(available)}")
    if len(set(names)) < len(names):
        raise UsageError("columns: a name is given twice")


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
    """Replacer of numbers that exceed a signed 64-bit column: by null, with a finding that contains the number."""

    def __init__(self, block: RecordBlock, rows: range, findings: dict[int, tuple[Finding, ...]]) -> None:
        self._block = block
        self._rows = rows
        self._findings = findings

    def replace_oversized(self, name: str, values: Sequence[int | None]) -> list[int | None]:
        """Return `values` with None for those out of range."""
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


# --- Reading ---


class RecordRowReader(Protocol):
    """Reads the rows of a part of a log."""

    @property
    def read_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""

    def read_batches(
        self, log: LogReader, name: str | None, selection: Selection, part: FilePart, on_finding: OnFinding
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Args:
            name: the file name in the rows; None = the name of the record's file.
            on_finding: see `OnFinding`.
        """

    def build_damage_batch(self, file: str, format: str, damage_finding: Finding) -> pa.RecordBatch:
        """Return the row for bytes that cannot be read."""


_MERGE_BYTES = 8 << 20
"""Maximum bytes of small batches that are merged into one."""


def resize_batches(batches: Iterable[pa.RecordBatch], size: int = MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Merge small batches and split large batches, to at most `size` rows."""
    pending, count, pending_bytes = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if pending and (count + batch.num_rows > size or pending_bytes > _MERGE_BYTES):
            yield _merge_batches(pending)
            pending, count, pending_bytes = [], 0, 0
        for start in range(0, batch.num_rows - size, size):
            yield batch.slice(start, size)
        rest = batch.slice((batch.num_rows - 1) // size * size) if batch.num_rows > size else batch
        if rest.num_rows:
            pending.append(rest)
            count, pending_bytes = count + rest.num_rows, pending_bytes + rest.nbytes
    if pending:
        yield _merge_batches(pending)


def _merge_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
