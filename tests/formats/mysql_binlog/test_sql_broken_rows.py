"""Rows that do not fit the map of their table: a script leaves their transaction out and says so, as verify does, and
compiled code sees them as the general writer does. MySQL 9.7 stops at such an event (ERROR 1610)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from binlogtool.core import decode_batches
from tests.cli.invoke import invoke
from tests.harness.mysql_writer import MARIADB, MYSQL, Made, begun, binlog, rows, table_map, transaction

INT, VARCHAR, UNKNOWN = 3, 15, 200
MAP = table_map(bytes([INT, VARCHAR]), b"\x50\0")


def image(number: int, text: bytes = b"abc", nulls: int = 0) -> bytes:
    return bytes([nulls]) + struct.pack("<I", number) + bytes([len(text)]) + text


GOOD = image(1)
NINE = table_map(bytes([INT] * 9))
BROKEN = {
    "cut short": (MAP, rows(GOOD[:-1], 2)),
    "cut short after sound rows": (MAP, rows(GOOD * 40 + GOOD[:-2], 2)),
    "bytes behind the last row": (MAP, rows(GOOD + b"\0", 2)),
    "an unknown type of a column": (table_map(bytes([UNKNOWN])), rows(b"\0\1\0\0\0", 1)),
    "a short bitmap of nulls": (NINE, rows(b"\xff", 9)),
    "nothing behind the table's number": (MAP, Made(30, (7).to_bytes(6, "little"))),
    "one byte of flags": (MAP, Made(30, (7).to_bytes(6, "little") + b"\1")),
    "other columns than the table": (MAP, rows(b"\0\1\0\0\0", 3, present=b"\1")),
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("in_middle", [False, True])
@pytest.mark.parametrize("how", ["exact", "statements"])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_row_that_does_not_fit_is_reported_and_its_transaction_is_left_out(
    kind: str, how: str, in_middle: bool, native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    mapped, broken = BROKEN[kind]
    log, server = tmp_path / "bin.000001", MYSQL if native else MARIADB
    around = begun if native else transaction
    events = []
    for number in range(1, 40):
        own = [mapped, broken] if number == 20 else [MAP, rows(GOOD, 2)]
        if number == 20 and in_middle:
            own = [MAP, rows(GOOD, 2, flags=0), rows(GOOD, 2, flags=0), *([mapped] * (mapped is not MAP)), broken]
        events += around(*own, number=number)
    log.write_bytes(binlog(events, server))
    words = ["--backend", "native" if native else "python"]
    made = invoke("dump", *words, "-O", "sql", "--rows", how, str(log))
    assert made.code == 1 and made.err.count("payload-undecodable") == 1, made.err
    assert made.text.count("COMMIT\n") == 38 and made.text.count("ROLLBACK\n/*!*/;\n# at ") == 1
    assert made.text.count("the rest of this transaction is missing") == 1


@pytest.mark.parametrize("command", ["convert --to sql", "flashback"])
@pytest.mark.parametrize("kind", BROKEN)
def test_convert_writes_nothing_and_reports_a_row_that_does_not_fit(kind: str, command: str, tmp_path: Path) -> None:
    log, out = tmp_path / "bin.000001", tmp_path / "x.sql"
    log.write_bytes(binlog([*begun(*BROKEN[kind], number=1), *begun(MAP, rows(GOOD, 2), number=2)], MYSQL))
    made = invoke(*command.split(), "-o", str(out), str(log))
    id_ = (
        "unsupported-version"
        if (kind, command) == ("an unknown type of a column", "flashback")
        else "payload-undecodable"
    )
    assert made.code == 1 and id_ in made.err + made.text and not out.exists()
