"""Logs with right checksums on which commands ended with status 70, reduced to whole events."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.cli.invoke import invoke
from tests.harness.mysql_writer import MARIADB, Made, binlog, lenenc, query, rows, table_map, transaction

USER_VAR = 14
STRING, DECIMAL = 0, 4


def user_var(kind: int, value: bytes) -> Made:
    """SET @a: `User_var_log_event` (sql/log_event.h): name, is_null, type, charset, value, flags."""
    head = struct.pack("<I", 1) + b"a\0" + bytes([kind]) + struct.pack("<II", 8, len(value))
    return Made(USER_VAR, head + value + b"\0")


@pytest.mark.parametrize("form", ["json", "text", "html"])
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [(DECIMAL, b"\x03\x02\x81\x19", "1.25"), (STRING, b"\xff\xfe", {"$bytes": "fffe"}), (STRING, b"abc", "abc")],
)
def test_the_hexdump_of_a_variable_is_made_in_every_form(
    tmp_path: Path, form: str, kind: int, value: bytes, expected: object
) -> None:
    """The decimal is that of SET @d = 1.25, as MySQL 9.7 logs it."""
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(transaction(user_var(kind, value), query(b"select @a")), MARIADB))
    done = invoke("hexdump-annotate", "-O", form, str(log))
    assert done.code == 0, done.err
    if form == "json":
        (shown,) = [one for one in json.loads(done.out)["fields"] if one["path"].endswith("content.value")]
        assert shown["end"] - shown["start"] == len(value)
        assert shown["value"] == expected


def test_tables_whose_images_lack_other_columns_are_told_apart(tmp_path: Path) -> None:
    """binlog_row_image=MINIMAL: of a wide table the third column is missing, a narrow one has only two."""

    def names(*all_: bytes) -> bytes:
        text = b"".join(lenenc(len(one)) + one for one in all_)
        return bytes([4]) + lenenc(len(text)) + text

    wide = table_map(b"\3\3\3", table_id=7, name=b"wide", optional=names(b"a", b"b", b"c"))
    narrow = table_map(b"\3\3", table_id=8, name=b"narrow", optional=names(b"a", b"b"))
    one, two = struct.pack("<I", 1), struct.pack("<I", 2)
    events = [
        made
        for number in range(1, 400)
        for made in transaction(
            wide, rows(b"\0" + one + two, 3, present=b"\3", flags=0), narrow,
            rows(b"\0" + two, 2, present=b"\2", table_id=8), number=number,
        )
    ]  # fmt: skip
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(events, MARIADB))
    done = invoke("convert", "--per-table", "--to", "parquet", "-o", str(tmp_path / "out"), str(log))
    assert done.code == 0, done.err
    for table, absent in (("d.wide", ["after.c"]), ("d.narrow", ["after.a"])):
        found = parquet.read_table(tmp_path / "out" / table).to_pylist()
        assert len(found) == 399 and all(row["absent"] == absent for row in found)
