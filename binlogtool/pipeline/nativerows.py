"""Rows from compiled code (`log.compiled`): Arrow columns directly from the columns of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from binlogtool.formats.jsonline import JsonLine
from binlogtool.log.blocks import Blocks
from binlogtool.log.body_json import quoted
from binlogtool.log.compiled import Compiled, Run
from binlogtool.log.records import Block
from binlogtool.log.stretches import Stretch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from binlogtool.schema.jsoncells import Cells, CellWriter


class NativeRows:
    """Turn record ranges into batches of rows, where compiled code can.

    schema: columns of the rows. rows: maximum number of rows in a batch.
    """

    def __init__(self, schema: pa.Schema, rows: int) -> None:
        self._schema = schema
        self._rows = rows
        self._compiled = Compiled(self._writer)

    def parts(self, stretch: Stretch, file: str) -> Iterator[pa.RecordBatch | Block]:
        """Yield the range in order: finished batches, and blocks that need the general path. file: file name in the
        rows.
        """
        for part in self._compiled.parts(stretch):
            yield part if isinstance(part, Block) else self._batch(part, file)

    def _writer(self, line: JsonLine, maker: Blocks) -> CellWriter:
        from binlogtool.schema.jsoncells import CellWriter

        body, extras = maker.decode == "full", "extras" in self._schema.names
        return CellWriter(line, maker.layout, quoted, self._rows, body=body, extras=extras)

    def _batch(self, run: Run[Cells], file: str) -> pa.RecordBatch:
        maker = run.stretch.maker
        columns = Columns(run.data, file, maker.format.name, getattr(maker.layout.frame.checksum, "name", ""))
        return pa.RecordBatch.from_arrays([columns.column(one) for one in self._schema], schema=self._schema)


class Columns:
    """Convert cells that compiled code filled to Arrow columns."""

    def __init__(self, cells: Cells, file: str, format: str, algorithm: str) -> None:
        import numpy as np

        self._cells = cells
        self._valid = {name: np.asarray(valid) for name, valid in cells.valid.items()}
        self._constant = {"file": file, "format": format}
        self._algorithm = algorithm

    def column(self, field: pa.Field) -> pa.Array:
        """Return one column."""
        cells, name = self._cells, field.name
        if name in self._constant:
            return pa.repeat(self._constant[name], cells.count)
        if name == "checksum_ok":
            return self._array(field.type, name, self._bits(name))
        if name in cells.numbers:
            return self._array(field.type, name, _copied(cells.numbers[name]))
        if name in cells.texts:
            return self._text(name)
        if name == "checksum_algorithm":
            return self._repeated(self._algorithm)
        return pa.nulls(cells.count, field.type)

    def _text(self, name: str) -> pa.Array:
        import numpy as np

        data, ends = self._cells.texts[name]
        return self._array(pa.string(), name, _copied(np.asarray(ends).astype("int32")), _copied(data[: ends[-1]]))

    def _repeated(self, text: str) -> pa.Array:
        """Return a column with a constant text in every row that has a checksum."""
        import numpy as np

        valid = self._valid["checksum_stored"]
        ends = np.concatenate([[0], np.cumsum(valid, dtype=np.int32) * len(text)]).astype(np.int32)
        data = pa.py_buffer(text.encode() * int(valid.sum()))
        return self._array(pa.string(), "checksum_stored", _copied(ends), data)

    def _array(self, kind: pa.DataType, name: str, *buffers: Any) -> pa.Array:
        valid = None if self._valid[name].all() else self._bits(name)
        return pa.Array.from_buffers(kind, self._cells.count, [valid, *buffers])

    def _bits(self, name: str) -> Any:
        import numpy as np

        return _copied(np.packbits(self._valid[name], bitorder="little"))


def _copied(values: memoryview | NDArray[np.generic]) -> Any:
    return pa.py_buffer(values.tobytes())
