"""Statements of transactions by native code: the same script as by the general writer, whatever is in their texts, in
their sessions and in the variables before them."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from binlogtool.core import decode_batches
from binlogtool.format_api.row_output_interfaces import ScriptOptions
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.sql_made import script

RAND, USER_VAR = 13, 14
NO_BACKSLASH_ESCAPES = 1 << 20
WORDS = (
    b"INSERT",
    b"update",
    b"Delete",
    b"REPLACE",
    b"COMMIT",
    b"ROLLBACK TO a",
    b"SAVEPOINT a",
    b"CALL p()",
    b"inserts",
)
PIECES = (
    b" ", b" into t values (1, 2)", b"'a'", b"'it''s'", b"'\\''", b'"a`b"', b"`c``d`", b"'\\", b"\\N", b"\\", b"# x\n",
    b"-- x\n", b"--1", b"- -1", b"/* c */", b"/", b"*/", b"'/*!*/;'", b"/*!1 x*/", b"'", b"\xe9\xff",
    "'\u00e9\u20ac'".encode(),
    b"\0", b"\n", b"'--'", b"'#'", b'"\\"', b"`\\`",
)  # fmt: skip
_LOUD = (b"\\", b"--", b"#", b"/")
QUIET = tuple(one for one in PIECES if one.count(b"'") % 2 == 0 and not one.strip().startswith(_LOUD))


def status(source: random.Random, mariadb: bool) -> bytes:
    made = b"\0" + struct.pack("<I", source.choice((0, 0, 1 << 26)))
    if source.random() < 0.95:
        made += b"\1" + struct.pack("<Q", source.choice((0, 1168113696, NO_BACKSLASH_ESCAPES)))
    charset = source.choice((255, 255, 45, 8, 28 if source.random() < 0.2 else 33))
    made += b"\4" + struct.pack("<HHH", charset, charset, 255)
    made += source.choice((b"", b"\5\6SYSTEM"))
    if source.random() < 0.05:
        made += b"\x0b\1a\1b"
    if source.random() < 0.7:
        part = source.choice((0, 7, 999_999, source.randrange(1_000_000), 1_000_000))
        made += (b"\x80" if mariadb and source.random() < 0.5 else b"\x0d") + part.to_bytes(3, "little")
    return made


def text(source: random.Random) -> bytes:
    pieces = PIECES if source.random() < 0.3 else QUIET
    return (
        source.choice(WORDS[:4] * 6 + WORDS)
        + b" " * (source.random() < 0.95)
        + b"".join(source.choices(pieces, k=source.randrange(8)))
    )


def variables(source: random.Random) -> list[bytes]:
    """What stands before a statement, sometimes odd."""
    made = list[bytes]()
    big = source.choice((1, 2, 300_000, (1 << 63) + 5))
    if source.random() < 0.3:
        made.append(make.event(make.INTVAR, bytes([source.choice((1, 2, 2, 2, 3))]) + struct.pack("<Q", big)))
    if source.random() < 0.2:
        made.append(make.event(RAND, struct.pack("<QQ", source.randrange(1 << 30), big)))
    if source.random() < 0.05:
        made.append(
            make.event(USER_VAR, struct.pack("<I", 1) + b"a\0\2" + struct.pack("<II", 8, 8) + struct.pack("<Q", 5))
        )
    return made


def a_log(source: random.Random, mariadb: bool) -> bytes:
    clients = [(source.randrange(1, 99), status(source, mariadb), source.choice((b"db", b"e", b""))) for _ in range(3)]
    events = list[bytes]()
    for number in range(1, 60):
        thread, block, database = source.choice(clients)
        if mariadb:
            events.append(make.event(make.GTID, make.mariadb_gtid(number)))
        else:
            begin = struct.pack("<I", thread) + make.query(b"BEGIN", block, database)[4:]
            events += [make.event(make.GTID_LOG, make.mysql_gtid(number)), make.event(make.QUERY, begin)]
        for _ in range(source.randrange(1, 4)):
            own = block if source.random() < 0.7 else status(source, mariadb)
            body = struct.pack("<I", thread) + make.query(text(source), own, database)[4:]
            time = source.choice((make.TIME, make.TIME, make.TIME + number, 0))
            flags = 8 * (source.random() < 0.03)
            events += [*variables(source), make.event(make.QUERY, body, time=time, flags=flags)]
        events.append(make.event(make.XID, bytes(8)))
    return make.log(events, version=make.MARIADB if mariadb else make.MYSQL)


FOUND = (148, 171, 218, 232, 250, 256, 284, 430, 506, 698)
"""Seeds on which the two ways once differed."""


def seeds() -> list[Any]:
    """A few for each run, those that found something for the slow ones, and the rest for the night."""
    later = (pytest.param(i, marks=pytest.mark.full if i in FOUND else pytest.mark.nightly) for i in range(16, 800))
    return [*range(16), *later]


@pytest.mark.full
@pytest.mark.parametrize("seed", seeds())
def test_statements_of_any_text_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = random.Random(seed)
    file = tmp_path / "log.000001"
    file.write_bytes(a_log(source, mariadb=seed % 2 == 0))
    wording = ScriptOptions(gtids=seed % 3 > 0, rows=source.choice(("exact", "statements")))
    expected, _ = script(file, wording)
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    made, quick = script(file, wording, "native")
    assert made == expected
    assert quick > (59 if seed < 16 else 0), "kernels wrote transactions"


@pytest.mark.parametrize("mariadb", [True, False])
def test_usual_statements_are_written_by_kernels(
    mariadb: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    block = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\4" + struct.pack("<HHH", 45, 45, 255)
    events = list[bytes]()
    for number in range(1, 101):
        gtid = make.event(make.GTID, make.mariadb_gtid(number)) if mariadb else b""
        begin = make.event(make.QUERY, make.query(b"BEGIN", block))
        events += [gtid] if mariadb else [make.event(make.GTID_LOG, make.mysql_gtid(number)), begin]
        own = block + b"\x0d" + number.to_bytes(3, "little")
        events.append(make.event(make.INTVAR, b"\2" + struct.pack("<Q", number)))
        events.append(make.event(make.QUERY, make.query(b"insert into t values (null, 'it\\'s %d')" % number, own)))
        events.append(make.event(make.QUERY, make.query(b"DELETE FROM t WHERE a = '%d''' LIMIT 1" % number, own)))
        events.append(make.event(make.XID, bytes(8)))
    file = tmp_path / "log.000001"
    file.write_bytes(make.log(events, version=make.MARIADB if mariadb else make.MYSQL))
    expected, _ = script(file, ScriptOptions(gtids=True))
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    made, quick = script(file, ScriptOptions(gtids=True), "native")
    assert made == expected
    assert made.text.count(b"SET INSERT_ID=") == 100
    assert quick >= 5 * 97, "all but the first ones"


@pytest.mark.parametrize("charset", [28, 45])
def test_what_a_statement_that_is_left_out_needs_is_not_taken_for_set(charset: int, tmp_path: Path) -> None:
    usual = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\4" + struct.pack("<HHH", 45, 45, 255)
    own = b"\0" + bytes(4) + b"\1" + struct.pack("<Q", 4) + b"\4" + struct.pack("<HHH", charset, charset, 255)
    texts = ((b"create table a (b int)", usual), (b"create table 'never closed", own), (b"create table c (d int)", own))
    file = tmp_path / "log.000001"
    file.write_bytes(make.log([make.event(make.QUERY, make.query(*one)) for one in texts], version=make.MARIADB))
    made, _ = script(file, ScriptOptions())
    assert b"never closed" not in made.text and len(made.said) == 1
    before = made.text[: made.text.index(b"create table c")]
    assert b"@@session.sql_mode=4" in before
    assert (b"/*!\\C gbk */" in before) is (charset == 28), "28 is gbk"
