"""What the fuzz targets found, each with a small input."""

from __future__ import annotations

from pathlib import Path

import binlogtool
from tests.formats.mariadb_innodb_binlog.ibb_make import CONT, group, header, sealed
from tests.harness.engine import account_holds
from tests.harness.hostile_ibb import chunk

P = 4096


def test_a_record_that_has_no_end_in_the_next_file_is_told_with_its_bytes_in_this_one(tmp_path: Path) -> None:
    """The bytes of the next file were counted, too, so that the finding reached behind the end of the file."""
    data = (b"\0" + group(1)).ljust(P - 4 - 3, b"x")
    for number, flags in enumerate((0, CONT)):
        page = sealed(chunk(1 | flags, data), P)
        (tmp_path / f"binlog-{number:06}.ibb").write_bytes(header(number, 1, P, 4) + page)
    report = binlogtool.verify([tmp_path])
    for file in report.files:
        account_holds(file, 2 * P)
    (found,) = (one for one in report.files[0].findings if one.id in ("torn-tail", "gap-in-sequence"))
    assert (found.offset, found.length) == (P, P - 4)
