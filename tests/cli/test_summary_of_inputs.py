"""The summary of a conversion names files of which something was written; others share a line where they are many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body


@pytest.mark.parametrize("empty", [3, 4, 12])
def test_many_files_without_records_share_a_line(empty: int, tmp_path: Path) -> None:
    for number in range(1, empty + 1):
        (tmp_path / f"bin.{number:06}").write_bytes(make.log([]))
    rows = [make.event(make.TABLE_MAP, table_map_body(b"\x03")), make.event(25, rows_body(1, image([bytes(4)])))]
    last = tmp_path / f"bin.{empty + 1:06}"
    last.write_bytes(make.log([make.event(make.GTID, make.mariadb_gtid(1)), *rows, make.event(make.XID, bytes(8))]))
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = invoke("flashback", "-j", f"{last.name}:4", "-o", str(tmp_path / "out.sql"), *files)
    read = [line for line in done.text.splitlines() if line.startswith("read ")]
    assert done.code == 0 and read[-1].startswith(f"read   {last}  "), done.err
    if empty == 3:
        assert [line.split()[1] for line in read] == files
    else:
        names = f"{tmp_path}/bin.000001 to bin.{empty:06}"
        assert len(read) == 2 and read[0].startswith(f"read   {names}  {empty} files, ")
        assert read[0].endswith("  0 records")
