"""The room for cells is the system's: pages that nobody wrote to take no memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.log.body_json import quoted
from binlogtool.schema.enumerated import layouts
from binlogtool.schema.jsoncells import ROOM, TEXTS, CellWriter

STATUS = Path("/proc/self/statm")


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATUS.read_text().split()[1]) * 4096


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say what is resident")
def test_a_writer_of_cells_takes_a_tenth_of_its_room_before_it_writes() -> None:
    layout, line = next(
        (layout, line)
        for layout, format_ in layouts()
        if format_.output.json is not None and (line := format_.output.json(layout.context)) is not None
    )
    before = resident()
    writer = CellWriter(line, layout, quoted, 2048)
    assert resident() - before < len(TEXTS) * ROOM // 10
    assert writer is not None
