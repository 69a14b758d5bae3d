"""Rows from compiled code (`log.compiled`): Arrow columns directly from the columns of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from binlogtool.formats.jsonline import JsonLine
from binlogtool.log.blocks import BlockDecoder
from binlogtool.log.body_json import to_json_bytes
from binlogtool.log.compiled import CompiledRun, CompiledSplitter
from binlogtool.log.records import RecordBlock
from binlogtool.log.stretches import RecordRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from binlogtool.schema.jsoncells import CellColumns, CellWriter


class CompiledRows:
    """Turn record ranges into batches of rows, where compiled code can.

    schema: columns of the rows. max_rows: maximum number of rows in a batch.
    """

    def __init__(self, schema: pa.Schema, max_rows: int) -> None:
        self._schema = schema
        self._max_rows = max_rows
        self._compiled = CompiledSplitter(self._create_writer)

    def build_parts(self, stretch: RecordRange, file: str) -> Iterator[pa.RecordBatch | RecordBlock]:
        """Yield the range in order: finished batches, and blocks that need the general path. file: file name in the
        rows.
        """
        for part in self._compiled.split_range(stretch):
            yield part if isinstance(part, RecordBlock) else self._build_batch(part, file)

    def _create_writer(self, line: JsonLine, maker: BlockDecoder) -> CellWriter:
        from binlogtool.schema.jsoncells import CellWriter

        body, extras = maker.decode == "full", "extras" in self._schema.names
        return CellWriter(line, maker.layout, to_json_bytes, self._max_rows, body=body, extras=extras)

    def _build_batch(self, run: CompiledRun[CellColumns], file: str) -> pa.RecordBatch:
        maker = run.record_range.decoder
        columns = ArrowColumns(run.data, file, maker.format.name, getattr(maker.layout.frame.checksum, "name", ""))
        return pa.RecordBatch.from_arrays([columns.build_column(one) for one in self._schema], schema=self._schema)


class ArrowColumns:
    """Convert cells that compiled code filled to Arrow columns."""

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
            return self._repeated_text_column(self._algorithm)
        return pa.nulls(cells.count, field.type)

    def _text_column(self, name: str) -> pa.Array:
        import numpy as np

        data, ends = self._cells.texts[name]
        return self._build_array(
            pa.string(), name, _copy_to_buffer(np.asarray(ends).astype("int32")), _copy_to_buffer(data[: ends[-1]])
        )

    def _repeated_text_column(self, text: str) -> pa.Array:
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
