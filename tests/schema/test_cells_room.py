"""The room for cells is the system's: pages that nobody wrote to take no memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.format_api.encode_json import to_json_bytes
from binlogtool.native_build.collect_kernels import iter_compiled_layouts
from binlogtool.schema.json_line_codegen import CELL_BUFFER_SIZE, TEXT_COLUMNS, CellWriter

STATUS = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATUS.read_text().split()[1]) * 4096


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say what is resident")
def test_a_writer_of_cells_takes_a_tenth_of_its_room_before_it_writes() -> None:
    layout, line = next(
        (layout, line)
        for layout, format_ in iter_compiled_layouts()
        if format_.output.json_line is not None and (line := format_.output.json_line(layout.context)) is not None
    )
    before = resident()
    writer = CellWriter(line, layout, to_json_bytes, 2048)
    assert resident() - before < len(TEXT_COLUMNS) * CELL_BUFFER_SIZE // 10
    assert writer is not None
