"""The last row of a transaction says so; one that broke off has no such row, whatever ends behind it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from tests.export.ibb_writer import IbbWriter
from tests.export.typed_logs import tables
from tests.formats.drizzle import make as make_drizzle
from tests.formats.mysql_binlog import make_log
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body

SKIP = Selection(on_damage="skip")
LONG, WRITE_ROWS = b"\x03", 23


def event(code: int, body: bytes) -> bytes:
    """As it stands in a group of an InnoDB binlog."""
    return make_log.event(code, body, checksum=False)


def gtid(number: int) -> bytes:
    return event(make_log.GTID, struct.pack("<QIB6x", number, 0, 12))


def write(table: bytes, value: int) -> list[bytes]:
    rows = rows_body(1, image([value.to_bytes(4, "little")]), [[True]])
    return [event(make_log.TABLE_MAP, table_map_body(LONG, database=b"db", table=table)), event(WRITE_ROWS, rows)]


END = event(make_log.XID, bytes(8))


@pytest.mark.parametrize("piece", [None, 40], ids=["in one record", "out of band"])
@pytest.mark.parametrize("behind", ["without rows", "of another table", "of the same table"])
def test_the_end_of_another_group_of_an_innodb_binlog_is_not_that_of_one_that_has_none(
    behind: str, piece: int | None, tmp_path: Path
) -> None:
    """Events that begin anew though the transaction before them was not ended."""
    more = {"without rows": [], "of another table": write(b"u", 3), "of the same table": write(b"t", 3)}[behind]
    log = IbbWriter(tmp_path / "log")
    log.group((0, 1, 1), [gtid(1), *write(b"t", 1), END], piece)
    log.group((0, 1, 2), [gtid(2), *write(b"t", 2)], piece)
    log.group((0, 1, 3), [gtid(3), *more, END], piece)
    log.group((0, 1, 4), [gtid(4), *write(b"t", 4), END], piece)
    log.close()
    wanted = {1: True, 2: False, 4: True} | ({3: True} if behind == "of the same table" else {})
    for backend in ("native", "python"):
        found, _ = tables(tmp_path / "log", tmp_path / backend, selection=SKIP, backend=backend)
        assert {row["@1"]: row["commit"] for row in found["db.t"]} == wanted
        assert [row["commit"] for row in found.get("db.u", ())] == ([True] if behind == "of another table" else [])
    with binlogtool.open(tmp_path / "log") as opened:
        assert {row["@1"]: row["commit"] for row in opened.rows("db.t")} == wanted


@pytest.mark.parametrize("behind", [b"u", b"t"], ids=["of another table", "of the same table"])
def test_the_end_of_another_transaction_is_not_that_of_one_of_drizzle_that_has_none(
    behind: bytes, tmp_path: Path
) -> None:
    message, insert = make_drizzle.message, make_drizzle.insert
    log = tmp_path / "transaction.log"
    log.write_bytes(
        make_drizzle.log(
            message(1, insert(), end=0),
            message(1, insert(), segment=2),
            message(2, insert(), end=0),
            message(3, insert(table=behind)),
            message(4, insert()),
        )
    )
    found, _ = tables(log, tmp_path / "out", selection=SKIP)
    made = {row["record"]: row["commit"] for table in found.values() for row in table}
    assert made == {0: False, 1: True, 2: False, 3: True, 4: True}
    with binlogtool.open(log) as opened:
        assert {row["record"]: row["commit"] for row in opened.rows("s.t")} == {
            record: commit for record, commit in made.items() if record != 3 or behind == b"t"
        }
