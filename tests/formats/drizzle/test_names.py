"""Names of tables and columns that are no UTF-8: typed tables have them as text, as all other outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from binlogtool import convert
from tests.formats.drizzle.make import TIMES, message
from tests.formats.drizzle.walk import pack


@pytest.mark.parametrize("form", ["json", "orc", "parquet"])
def test_names_that_are_no_text_are_escaped(tmp_path: Path, form: str) -> None:
    """It was an internal error."""
    metadata = {"schema_name": b"s", "table_name": b"t\xfe"}
    header = {"table_metadata": metadata, "field_metadata": [{"type": 4, "name": b"c\x98"}]}
    data = {"segment_id": 1, "end_segment": 1, "record": [{"insert_value": [b"7"], "is_null": [0]}]}
    log = tmp_path / "transaction.log"
    log.write_bytes(pack(message(1, {"type": 1, **TIMES, "insert_header": header, "insert_data": data})))
    done = convert([log], form, tmp_path / "out", per_table=True)
    assert (done.rows, done.exit_code) == (1, 0)
    (table,) = (path for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert table.name == "s.t%5Cxfe"
    if form == "json":
        assert json.loads(next(table.glob("*.json")).read_text())["c\\x98"] == 7
