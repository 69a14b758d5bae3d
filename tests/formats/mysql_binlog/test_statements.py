"""`-O sql` of logs made by hand, and the pieces that it is made of. Expected texts are written out."""

from __future__ import annotations

import base64
import random
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import RecordBlock, ScriptText, SqlFragment
from binlogtool.findings import Finding
from binlogtool.format_api.row_output_interfaces import ScriptOptions
from binlogtool.formats.binlog_events.rows.rows_event import RowImageReader
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.sql.client_safe_statements import explain_why_not_sendable
from binlogtool.formats.binlog_events.sql.format_literals import (
    format_equality_condition,
    format_value_literal,
    quote_identifier,
    quote_string,
)
from binlogtool.formats.binlog_events.values.column_types import ColumnType, LogicalType, TableMapColumn
from binlogtool.formats.binlog_events.values.decode_values import DecodeBudget
from binlogtool.formats.binlog_events.wire_format import EventFlag, EventType
from binlogtool.limits import Limits
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import optional, rows_body, sized, table_map_body
from tests.formats.mysql_binlog.statement_events import MAP, NAMES, STATUS, insert, insert_statement, row, transaction

_C, _T = ColumnType, EventType
STATEMENTS = ScriptOptions(rows="statements")
AUTOMATIC = "SET @@session.gtid_next='AUTOMATIC'"
BAD_ROWS = b"\7" + bytes(9)
PLAIN_MAP = table_map_body(bytes([_C.LONG, _C.VARCHAR]), b"\x40\0")


def script(
    data: bytes, folder: Path, *, schema: str | None = None, wording: ScriptOptions = STATEMENTS, **selection: object
) -> tuple[str, list[Finding]]:
    """(the script, what could not be written)"""
    from binlogtool.core.record_and_selection_types import Selection

    path = folder / "mariadb-bin.000001"
    path.write_bytes(data)
    text, found = b"", list[Finding]()
    with binlogtool.open(path, format="mysql-binlog", hints=binlogtool.Hints(schema=schema)) as log:
        for part in log.statements(Selection(**selection), wording):  # type: ignore[arg-type]
            if isinstance(part, RecordBlock):
                text += b"".join(part.bodies)
                found += [f for findings in part.findings.values() for f in findings]
            elif isinstance(part, SqlFragment | ScriptText):
                text += part.data
    return text.decode("utf-8", "surrogateescape"), found


def statements(text: str) -> list[str]:
    """The statements between the first ones and the last, which are always the same."""
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    assert lines[0].startswith("/*!50530 SET @@session.pseudo_slave_mode=1") and lines[2] == "DELIMITER /*!*/;"
    assert lines[-4] == "DELIMITER ;" and "COMPLETION_TYPE=@OLD_COMPLETION_TYPE" in lines[-3]
    found = "\n".join(lines[3:-4]).split("\n/*!*/;\n")
    assert found[:2] == ["/*!\\C utf8mb4 */", "ROLLBACK"] and found[2].startswith("BINLOG")
    found[-1] = found[-1].removesuffix("\n/*!*/;")
    own = [s.removeprefix("/*! */") for s in found[3:] if "skip_parallel" not in s or "gtid" in s]
    if own and own[-1].startswith("SET ") and "=DEFAULT" in own[-1]:
        own.pop()
    return [s for s in own if s != AUTOMATIC]


def test_a_statement_is_written_in_its_session(tmp_path: Path) -> None:
    sql = b"insert into t values ('\xc3\xa9')"
    events = transaction(1, make.event(_T.QUERY, make.query(sql, STATUS)))
    text, found = script(make.log(events), tmp_path)
    start, use, session, statement, end = statements(text)
    assert (start, use, statement, end) == ("START TRANSACTION", "USE `db`", "insert into t values ('é')", "COMMIT")
    assert "@@session.foreign_key_checks=0, @@session.unique_checks=1, " in session
    assert "@@session.autocommit" not in session  # to turn it on would commit what is open
    assert "@@session.sql_mode=0" in session and f"TIMESTAMP={make.TIME}" in session
    assert "@@session.character_set_client=45, @@session.collation_connection=45" in session
    assert "# at 256 GTID 0-1-1\n" in text and not found


def test_a_session_is_set_only_where_it_changes(tmp_path: Path) -> None:
    other = struct.pack("<BI", 0, 0) + STATUS[5:]
    one, two = make.query(b"insert into t values (1)", STATUS), make.query(b"insert into t values (2)", other)
    events = transaction(1, *(make.event(_T.QUERY, body) for body in (one, one, two)))
    changes = [s for s in statements(script(make.log(events), tmp_path)[0]) if s.startswith("SET")]
    assert len(changes) == 2
    assert changes[1] == "SET @@session.foreign_key_checks=1"


def test_variables_stand_before_their_statement(tmp_path: Path) -> None:
    string = struct.pack("<I", 1) + b"s" + b"\0" + struct.pack("<BII", 0, 8, 3) + b"caf"
    number = struct.pack("<I", 1) + b"u" + b"\0" + struct.pack("<BII", 2, 63, 8) + b"\xff" * 8 + b"\1"
    null = struct.pack("<I", 1) + b"n" + b"\1"
    events = transaction(
        1,
        make.event(_T.INTVAR, struct.pack("<BQ", 2, 33)),
        make.event(_T.RAND, struct.pack("<QQ", 5, 6)),
        *(make.event(_T.USER_VAR, body) for body in (string, number, null)),
        make.event(_T.QUERY, make.query(b"insert into t values (@s)", STATUS)),
    )
    assert statements(script(make.log(events), tmp_path)[0])[1:7] == [
        "SET INSERT_ID=33",
        "SET @@RAND_SEED1=5, @@RAND_SEED2=6",
        "SET @@session.collation_connection=8",
        "SET @`s`:=CAST(X'636166' AS CHAR)",
        "SET @`u`:=18446744073709551615",
        "SET @`n`:=NULL",
    ]


def test_rows_are_statements_where_names_and_types_are_known(tmp_path: Path) -> None:
    update = rows_body(2, row(1, b"a") + row(2, None), [[True, True], [True, True]])
    delete = rows_body(2, row(2, None))
    events = transaction(
        1,
        make.event(_T.TABLE_MAP, MAP),
        insert(1, b"it's \\ \n"),
        make.event(_T.TABLE_MAP, MAP),
        make.event(_T.UPDATE_ROWS_V1, update),
        make.event(_T.TABLE_MAP, MAP),
        make.event(_T.DELETE_ROWS_V1, delete),
    )
    found = statements(script(make.log(events), tmp_path)[0])
    assert found[2:] == [
        "INSERT INTO `db`.`t` (`id`,`n``me`) VALUES\n(1,'it''s \\\\ \\n')",
        "UPDATE `db`.`t` SET `id`=2, `n``me`=NULL WHERE `id` <=> 1 AND CAST(`n``me` AS BINARY) <=> 'a' LIMIT 1",
        "DELETE FROM `db`.`t` WHERE `id` <=> 2 AND `n``me` IS NULL LIMIT 1",
        "COMMIT",
    ]


def test_a_known_primary_key_names_the_row(tmp_path: Path) -> None:
    keyed = table_map_body(bytes([_C.LONG, _C.VARCHAR]), b"\x40\0", NAMES + optional(8, b"\1"))
    events = transaction(1, make.event(_T.TABLE_MAP, keyed), make.event(_T.DELETE_ROWS_V1, rows_body(2, row(2, b"k"))))
    assert "DELETE FROM `db`.`t` WHERE `n``me` <=> 'k' LIMIT 1" in script(make.log(events), tmp_path)[0]


def test_a_schema_gives_the_names_and_leaves_out_what_is_generated(tmp_path: Path) -> None:
    events = transaction(1, make.event(_T.TABLE_MAP, PLAIN_MAP), insert(7, b"x"))
    schema = "create table db.t (a int, b varchar(16) charset latin1 generated always as ('x') stored)"
    assert "INSERT INTO `db`.`t` (`a`) VALUES\n(7)\n" in script(make.log(events), tmp_path, schema=schema)[0]


def events_of(statement: str) -> list[bytes]:
    """The events inside BINLOG '…'."""
    lines = statement.removeprefix("BINLOG '").removesuffix("'").split("\n")
    raw = b"".join(map(base64.b64decode, lines))
    found = []
    while raw:
        size = int.from_bytes(raw[9:13], "little")
        found.append(raw[:size])
        raw = raw[size:]
    return found


@pytest.mark.parametrize("checksum", [True, False])
def test_rows_without_names_are_the_events_themselves(checksum: bool, tmp_path: Path) -> None:
    body = bytearray(rows_body(2, row(1, b"a")))
    body[6] = 0  # not the last one of its statement: each BINLOG is a statement of its own
    plain = [make.event(_T.TABLE_MAP, PLAIN_MAP, checksum), make.event(_T.WRITE_ROWS_V1, bytes(body), checksum)]
    head = make.event(_T.GTID, make.mariadb_gtid(1), checksum)
    data = make.log([head, *plain, *plain, make.event(_T.XID, bytes(8), checksum)], checksum=checksum)
    text = script(data, tmp_path)[0]
    assert events_of(text[text.index("BINLOG '") :].split("'")[1]) == [make.description(checksum=checksum)]
    found = [s for s in statements(text) if s.startswith("BINLOG")]
    assert found[0] == found[1] and len(found) == 2
    table, rows = events_of(found[0])
    assert table == plain[0]
    body[6] = 1
    assert rows == make.event(_T.WRITE_ROWS_V1, bytes(body), checksum)


def test_compressed_rows_are_unpacked_for_the_server(tmp_path: Path) -> None:
    images = row(1, b"a") * 3
    packed = rows_body(2, b"\x81" + bytes([len(images)]) + zlib.compress(images))
    events = transaction(1, make.event(_T.TABLE_MAP, PLAIN_MAP), make.event(_T.WRITE_ROWS_COMPRESSED_V1, packed))
    last = [s for s in statements(script(make.log(events), tmp_path)[0]) if s.startswith("BINLOG")][-1]
    assert events_of(last)[1] == make.event(_T.WRITE_ROWS_V1, rows_body(2, images))


@pytest.mark.parametrize(
    ("types", "metadata", "value", "more"),
    [
        (_C.STRING, bytes([247, 1]), b"\0", optional(6, b"\1" + sized(b"x"))),
        (_C.VARCHAR, b"\x40\0", b"\2\xff\xfe", b""),
        (_C.GEOMETRY, b"\1", b"\0", b""),
        (_C.JSON, b"\2", b"\7\0" + b"\x0f\xf6\4\2\1\x81\5", b""),
    ],
    ids=["the refused value of an ENUM", "text that is none", "no geometry", "a decimal in JSON"],
)
def test_values_that_no_literal_has_go_as_events(
    types: int, metadata: bytes, value: bytes, more: bytes, tmp_path: Path
) -> None:
    table = table_map_body(bytes([types]), metadata, optional(4, sized(b"c")) + optional(2, b"\x2d") + more)
    events = transaction(1, make.event(_T.TABLE_MAP, table), make.event(_T.WRITE_ROWS_V1, rows_body(1, b"\0" + value)))
    text, found = script(make.log(events), tmp_path)
    assert "BINLOG" in statements(text)[-2] and "INSERT" not in text
    assert [one.id for one in found] == ["statement-inexact"]


def test_tables_with_triggers_go_as_events(tmp_path: Path) -> None:
    table = MAP[:6] + struct.pack("<H", 0x4001) + MAP[8:]
    text = script(make.log(transaction(1, make.event(_T.TABLE_MAP, table), insert(1, b"a"))), tmp_path)[0]
    assert "BINLOG" in text and "INSERT" not in text


def damaged(data: bytes, event: bytes) -> bytes:
    """A bit of the event's body is flipped."""
    at = data.index(event) + 25
    return data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]


def test_a_transaction_with_damage_is_rolled_back_and_its_rest_left_out(tmp_path: Path) -> None:
    first = transaction(1, *map(insert_statement, (1, 2, 3), (b"a", b"b", b"c")))
    second = transaction(2, make.event(_T.TABLE_MAP, MAP), insert(4, b"d"))
    text, _ = script(damaged(make.log(first + second), insert(2, b"b")), tmp_path)
    kept = [s.split("\n")[-1] for s in statements(text) if not s.startswith("SET")]
    assert kept == ["START TRANSACTION", "(1,'a')", "ROLLBACK", "START TRANSACTION", "(4,'d')", "COMMIT"]


def test_an_event_that_cannot_be_decoded_rolls_its_transaction_back(tmp_path: Path) -> None:
    first = transaction(
        1, insert_statement(1, b"a"), make.event(_T.TABLE_MAP, MAP), make.event(_T.WRITE_ROWS_V1, BAD_ROWS)
    )
    second = transaction(2, make.event(_T.TABLE_MAP, MAP), insert(4, b"d"))
    text, (undeclared, found) = script(make.log(first + second), tmp_path)
    assert undeclared.id == "statement-inexact" and "neither the log nor --schema declares" in undeclared.message
    assert found.id == "payload-undecodable" and "WRITE_ROWS_V1 cannot be written as a statement" in found.message
    kept = [s.split("\n")[-1] for s in statements(text) if not s.startswith("SET")]
    assert kept == ["START TRANSACTION", "(1,'a')", "ROLLBACK", "START TRANSACTION", "(4,'d')", "COMMIT"]


def test_variables_of_a_lost_statement_are_not_set(tmp_path: Path) -> None:
    bad = make.event(_T.QUERY, make.query(b"insert into t values (1)", STATUS))
    first = transaction(1, make.event(_T.INTVAR, struct.pack("<BQ", 2, 33)), bad)
    second = transaction(2, make.event(_T.QUERY, make.query(b"insert into t values (2)", STATUS)))
    text, _ = script(damaged(make.log(first + second), bad), tmp_path)
    assert "INSERT_ID" not in text and "values (2)" in text


def test_a_transaction_that_is_torn_is_rolled_back(tmp_path: Path) -> None:
    events = transaction(1, insert_statement(1, b"a"), insert_statement(2, b"b"))
    text, _ = script(make.log(events[:-1])[:-3], tmp_path)
    assert [s.split("\n")[-1] for s in statements(text)][-2:] == ["(1,'a')", "ROLLBACK"]


def test_xa_transactions_keep_their_names(tmp_path: Path) -> None:
    xid = struct.pack("<iBB", 7, 2, 1) + b"g1b"
    events = [
        make.event(_T.GTID, make.mariadb_gtid(1, flags=64 | 4, more=xid)),
        make.event(_T.TABLE_MAP, MAP),
        insert(1, b"a"),
        make.event(_T.QUERY, make.query(b"XA END X'6731',X'62',7", STATUS)),
        make.event(_T.XA_PREPARE, b"\0" + struct.pack("<iii", 7, 2, 1) + b"g1b"),
    ]
    found = [s for s in statements(script(make.log(events), tmp_path)[0]) if s.startswith("XA")]
    assert found == [f"XA {verb} X'6731',X'62',7" for verb in ("START", "END", "PREPARE")]
    torn = [s for s in statements(script(make.log(events[:3]), tmp_path)[0]) if s.startswith("XA")]
    assert torn == [f"XA {verb} X'6731',X'62',7" for verb in ("START", "END", "ROLLBACK")]


def test_a_database_is_named_again_behind_create_and_drop(tmp_path: Path) -> None:
    ddl = make.event(_T.QUERY, make.query(b"drop database db", STATUS), flags=EventFlag.SUPPRESS_USE)
    change = make.event(_T.QUERY, make.query(b"insert into t values (1)", STATUS))
    found = statements(script(make.log([*transaction(1, change, ddl, change, change)]), tmp_path)[0])
    assert found.count("USE `db`") == 2


def test_chosen_rows_keep_their_transactions(tmp_path: Path) -> None:
    pairs = [(n, (insert_statement(n, b"a"), insert_statement(n, b"b"))) for n in (1, 2)]
    events = [event for n, statements_ in pairs for event in transaction(n, *statements_)]
    found = statements(script(make.log(events), tmp_path, types=("WRITE_ROWS_V1",))[0])
    kept = [s.split("\n")[-1] for s in found if not s.startswith("SET")]
    one, two = ["(1,'a')", "(1,'b')"], ["(2,'a')", "(2,'b')"]
    assert kept == ["START TRANSACTION", *one, "COMMIT", "START TRANSACTION", *two, "COMMIT"]


def test_gtids_are_set_when_they_are_asked_for(tmp_path: Path) -> None:
    mariadb = make.log(transaction(9, make.event(_T.TABLE_MAP, MAP), insert(1, b"a")))
    wanted = "SET @@session.gtid_domain_id=0, @@session.server_id=1, @@session.gtid_seq_no=9"
    assert statements(script(mariadb, tmp_path, wording=ScriptOptions(gtids=True))[0])[0] == wanted
    events = [
        make.event(_T.GTID_LOG, make.mysql_gtid(7)),
        make.event(_T.QUERY, make.query(b"BEGIN", STATUS)),
        make.event(_T.XID, bytes(8)),
    ]
    found = statements(script(make.log(events, make.MYSQL), tmp_path, wording=ScriptOptions(gtids=True))[0])
    own = "'3e11fa47-71ca-11e1-9e33-c80aa9429562:7'"
    assert found[1:2] == [f"SET @@session.gtid_next={own}"] and found[-2:] == ["BEGIN", "COMMIT"]
    assert found[2].startswith("SET TIMESTAMP=") and "@@session.autocommit=1" in found[2]


@pytest.mark.parametrize("lost", ["changed", "undecodable", "the rest"])
def test_a_gtid_whose_transaction_is_lost_is_given_back(lost: str, tmp_path: Path) -> None:
    """MySQL refuses the next gtid_next while a session has one that nothing took (ERROR 1790)."""
    begin = make.event(_T.QUERY, make.query(b"BEGIN", STATUS))
    events = [make.event(_T.GTID_LOG, make.mysql_gtid(7))]
    events += [make.event(_T.QUERY, make.query(b"drop table 'a", STATUS))] if lost == "undecodable" else [begin]
    if lost != "the rest":
        events += [make.event(_T.GTID_LOG, make.mysql_gtid(8)), begin, make.event(_T.XID, bytes(8))]
    log = make.log(events, make.MYSQL)
    at = log.index(events[1][19:40])
    data = log if lost == "undecodable" else log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]
    text = script(data, tmp_path, wording=ScriptOptions(gtids=True))[0]
    own = "SET @@session.gtid_next='3e11fa47-71ca-11e1-9e33-c80aa9429562:7'"
    found = [one for one in statements(text) if one.startswith((own, "ROLLBACK", "BEGIN", "COMMIT"))]
    assert found[found.index(own) + 1 :] == ["ROLLBACK", *(["BEGIN", "COMMIT"] if lost != "the rest" else [])]


def test_an_alter_in_two_phases_is_written_once(tmp_path: Path) -> None:
    alter = make.event(_T.QUERY, make.query(b"alter table t add b int", STATUS))
    events = [
        make.event(_T.GTID, make.mariadb_gtid(1, flags=33, more=b"\2" + bytes(5))), alter,
        make.event(_T.GTID, make.mariadb_gtid(2, flags=33, more=b"\4" + struct.pack("<Q", 1))), alter,
    ]  # fmt: skip
    assert script(make.log(events), tmp_path)[0].count("alter table t add b int") == 1


@pytest.mark.parametrize(
    ("code", "body", "reason"),
    [
        (_T.INCIDENT, b"\1\0\0", "the server lost events here"),
        (_T.EXECUTE_LOAD_QUERY, bytes(26) + b"\0", "LOAD DATA needs a directory for the file"),
        (99, b"", "unknown event type"),
    ],
)
def test_what_is_no_statement_is_told(code: int, body: bytes, reason: str, tmp_path: Path) -> None:
    text, (found,) = script(make.log([make.event(code, body)]), tmp_path)
    assert reason in found.message and statements(text) == []


# -- the client --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        b"select '\\' ; it''s', \"\\\"\", `\\`, \\N -- it's\n, # '\n 1 /* ' \\! */",
        b"select 'a\0b\xff'", b"/* app */ insert into t values (1)", b"select delimiter from t",
        b"create table t (a int /*!80023 INVISIBLE */)",
    ],
)  # fmt: skip
def test_statements_of_a_server_are_read_as_one(sql: bytes) -> None:
    assert client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", 0)[1] is None


@pytest.mark.parametrize(
    ("sql", "mode"),
    [
        (b"select 1 \\! touch x", 0), (b"select 1 /*! \\! touch x */", 0), (b"select 'a", 0), (b"select `a", 0),
        (b"select 1 /* a", 0), (b"select 'a\\' \\! touch x", client_safe_statements.NO_BACKSLASH_ESCAPES),
        (b'select "\\"', 0),
        (b"select 1 --\1 '", 0), (b"select $$", 0), (b"select a.$x$", 0), (b"select $a$ ' $a$ '", 0),
        (b"do $$-- \\$$", 0),
        (b"select 1 /*! 'a*/'", 0), (b"select 1 /*! a", 0), (b"select 1 /*! a /*M! b */ */", 0),
        (b"select 1 /*!50000 -- */\n */", 0), (b"select 'a\ndelimiter', b\nfrom t", 0),
    ],
)  # fmt: skip
def test_forged_statements_are_refused(sql: bytes, mode: int) -> None:
    assert client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", mode)[1] is not None


@pytest.mark.parametrize(
    "sql",
    [
        b"select 1 $$#$$'\n,'", b"select 1 $$ -- $$'\n,'", b"select $a$ \\N $a$", b"system touch x",
        b"/*! */system touch x", b"/* c */\nsystem touch x\n", b"/* ?\n\\! touch x\n*/ select 1", b"/* go\n*/ select 1",
        b"select /*+ \\! touch x\n*/ 1", b"select /*+ # */ 1", b"select /*+ ' \n */ 1", b"select `a\\\nb`",
        b"select `a\\\0b`", b"/*! */ DELIMITER x", b"use d",
        b"/* x */\n DELIMITER'--\n'", b"/*! */delimiterx", b"select /*M!100100 '/*!'*/ 1",
        b"/*!a\ntee y\n \nsystem touch x\n*/ select 1",
         b"/**/help contents", b"s\xf3urce x",
    ],
)  # fmt: skip
def test_a_text_that_clients_read_in_different_ways_is_left_out(sql: bytes) -> None:
    """Tried with the clients of MySQL 9.7 (--commands --system-command) and of MariaDB 10.11 and 11.8."""
    assert client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", 0)[1] is not None


@pytest.mark.parametrize(
    ("sql", "mode", "depends"),
    [
        (b"select 'it\\'s'", 0, True), (b"select 'a\\\\'", 0, False), (b"select 'a\\n'", 0, False),
        (b"select 'a\\'", 1 << 20, True), (b'select "\\"", 1', 0, True), (b"select '\\'''#''a'", 0, True),
        (b"select `a\\`", 0, False), (b"select '\\\n'", 0, True),
    ],
)  # fmt: skip
def test_a_text_that_depends_on_backslashes_is_known(sql: bytes, mode: int, depends: bool) -> None:
    assert client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", mode)[1] is None
    assert client_safe_statements.is_sql_mode_dependent(sql, "utf8mb4") == depends


def test_a_text_in_gb18030_depends_on_backslashes_also_for_clients_that_do_not_know_it() -> None:
    text = b"select '\xa6\\''\nsource y\n'"
    assert client_safe_statements.make_client_safe_or_explain(text, "gb18030", 1 << 20)[1] is None
    assert client_safe_statements.is_sql_mode_dependent(text, "gb18030")


def test_ansi_quotes_are_read_differently_by_mariadb_and_mysql() -> None:
    """MariaDB's clients see the end of `"a\\"` in ANSI_QUOTES, MySQL's do not; in the usual mode none of them does."""
    assert client_safe_statements.make_client_safe_or_explain(b'select "a\\", "b"', "utf8mb4", 4)[1] is not None
    assert client_safe_statements.make_client_safe_or_explain(b'select "a\\", "b"', "utf8mb4", 0)[1] is not None
    assert client_safe_statements.make_client_safe_or_explain(b'select "a\\"", 1', "utf8mb4", 0)[1] is None


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (b"LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE t", "LOCAL INFILE"),
        (b"LOAD/**/XML/* x */LOCAL # y\n INFILE 'x' INTO TABLE t", "LOCAL INFILE"),
        (b"LOAD DATA FROM LOCAL INFILE 'x' INTO TABLE t", "LOCAL INFILE"),
        (b"/*!50000 LOAD*/ DATA LOCAL INFILE 'x' INTO TABLE t", "LOCAL INFILE"),
        (b"/*!99999 CREATE PROCEDURE p() */ EXECUTE IMMEDIATE 'x'", "servers disagree about which statements"),
        (b"SELECT 1; DROP TABLE t", "more than one statement"),
        (b"insert into t values (1); insert into t values (2)", "more than one statement"),
        (b"EXECUTE IMMEDIATE 'select 1'", "EXECUTE"), (b"call p()", "CALL"), (b"/* x */ prepare a from 'b'", "PREPARE"),
        (b"SET STATEMENT a=1 FOR LOAD DATA LOCAL INFILE 'x' INTO TABLE t", "LOCAL INFILE"),
        (b"BEGIN NOT ATOMIC EXECUTE IMMEDIATE 'x'; END", "more than one statement"),
        (b"create procedure p() begin select 1; end; execute immediate 'x'", "follow the end"),
        (b"create procedure p() begin case 1 when 1 then select 1; end             case; end; execute immediate 'x'",
         "follow the end"),
        (b"create procedure p(begin int) set @a = 1; execute immediate 'x'", "follow the end"),
        (b"create procedure p() update begin set a = 1; execute immediate 'x'", "follow the end"),
        (b"create procedure p() begin update do begin set a = 1; end; execute immediate 'x'", "follow the end"),
        (b"create procedure p() begin set @a = case 1 when 1 then begin end; end; execute immediate 'x'",
         "follow the end"),
        (b"create procedure p() begin declare exit handler for sqlexception update begin set a = 1; end; "
         b"execute immediate 'x'", "follow the end"),
    ],
)  # fmt: skip
def test_what_no_server_logs_as_a_statement_is_left_out(sql: bytes, reason: str) -> None:
    assert client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", 0)[1] is None
    assert reason in (explain_why_not_sendable(sql, "utf8mb4", 0) or "")


@pytest.mark.parametrize(
    "sql",
    [
        b"insert into t values ('LOAD DATA LOCAL INFILE; EXECUTE')", b"LOAD DATA INFILE 'x' INTO TABLE t",
        b"create procedure p() begin case when 1 then call q(); else execute x; end case; "
        b"if a then call r(); end if; end",
        b"CREATE DEFINER=`root`@`localhost` PROCEDURE `p`() begin prepare a from 'b'; execute a; end",
        b"/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`localhost`*/ /*!50003 TRIGGER t before insert on x for each row "
        b"begin set new.a=1; call p(); end */", b"select `local infile; call`", b"insert into t values (1);",
        b"create function f(a varchar(9) character set utf8mb4) returns int no sql begin call p(); return 1; end",
        b"create trigger t after update on a for each row follows b begin if 1 then begin call p(); end; end if; end",
        b"create event e on schedule every 1 day do begin declare a int; declare continue handler for not found begin "
        b"end; declare exit handler for sqlstate '42000', 1051, sqlwarning begin call q(); end; a: while 1 do begin "
        b"call q(); leave a; end; end while; end",
        b"create procedure p() l: begin repeat call q(); until 1 end repeat; for i in 1..2 do call q(); end for; end l",
        b"create procedure p() begin case 1 when 1 then begin call q(); end; else call r(); end case; end",
    ],
)  # fmt: skip
def test_what_servers_log_is_no_hidden_statement(sql: bytes) -> None:
    text, reason = client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", 0)
    assert (text, reason, explain_why_not_sendable(sql, "utf8mb4", 0)) == (sql, None, None)


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        (b"insert into t values (1) /* a /*! b */", b"insert into t values (1) /* a / *! b */"),
        (b"select 1 /* a /*M! b */", b"select 1 /* a / *M! b */"),
        (b"select 1 /* a /*+ b */", b"select 1 /* a / *+ b */"),
        (b"select 1 /* a /*/", b"select 1 /* a / */"), (b"select 1 /* a /* b */", b"select 1 /* a /* b */"),
        (b"create table t (a int /*!50000 /* b */ unsigned */)", b"create table t (a int /*!50000   unsigned */)"),
        (b"select 2 /*! */*3", b"select 2 /*! */ *3"),
        (b"select a\ndelimiter\nfrom t", b"select a\n delimiter\nfrom t"),
        (b"select a$$b, $ $, '$$'", b"select a$$b, $ $, '$$'"), (b"do $a$ 'x' $a$", b"do $a$ 'x' $a$"),
        (b"insert into t values ('a\ndelimiter ;')", b"insert into t values ('a\ndelimiter ;')"),
    ],
)  # fmt: skip
def test_what_a_client_would_not_find_the_end_of_is_written_so_that_it_does(sql: bytes, written: bytes) -> None:
    assert client_safe_statements.make_client_safe_or_explain(sql, "utf8mb4", 0) == (written, None)


@pytest.mark.full
def test_a_long_text_of_marks_is_read_in_linear_time() -> None:
    for piece in (b"'a'", b"$a$ $a$ ", b"/*! */*", b"/* /*! */", b"\ndelimiter '\ndelimiter\n' ", b"$b$a", b"/*!'a' "):
        start = time.process_time()
        client_safe_statements.make_client_safe_or_explain(b"select " + piece * 40_000, "utf8mb4", 0)
        assert time.process_time() - start < 2, piece


def test_a_backslash_inside_a_character_is_no_escape() -> None:
    assert client_safe_statements.make_client_safe_or_explain("select '表'".encode("cp932"), "cp932", 0)[1] is None
    assert (
        client_safe_statements.make_client_safe_or_explain("select '表'".encode("cp932"), "utf8mb4", 0)[1] is not None
    )
    assert (
        client_safe_statements.format_charset_command("cp932") == b"/*!\\C cp932 */"
        and client_safe_statements.format_charset_command("latin1") == b"/*!\\C utf8mb4 */"
    )


@pytest.mark.parametrize(
    ("sql", "ended"),
    [
        (b"INSERT 1", b"INSERT 1\n/*!*/;\n"),
        (b"select '$$'", b"select '$$'\n/*!*/;\n"),
        (b"system rm x", b"/*! */system rm x\n/*!*/;\n"),
        (b"\\! rm x", b"/*! */\\! rm x\n/*!*/;\n"),
        (b"/* x */ system y", b"/*! *//* x */ system y\n/*!*/;\n"),
        (b"use x", b"/*! */use x\n/*!*/;\n"),
    ],
)
def test_a_statement_ends_with_what_is_not_in_it_and_begins_with_no_command(sql: bytes, ended: bytes) -> None:
    assert client_safe_statements.terminate_statement(sql) == ended


@pytest.mark.parametrize(("sql", "charset"), [(b"select '/*!*/;'", None), (b"select '\xd2\xbb'", "gbk")])
def test_a_text_that_could_end_itself_has_an_end_that_nobody_foresees(sql: bytes, charset: str | None) -> None:
    first, *lines, last = client_safe_statements.terminate_statement(sql, charset).splitlines()
    mark = first.removeprefix(b"DELIMITER ")
    assert lines == [sql, mark] and last == b"DELIMITER /*!*/;"
    assert len(mark) == 14 and mark not in client_safe_statements.terminate_statement(sql + b" ", charset)


def test_a_forged_statement_is_left_out_and_told(tmp_path: Path) -> None:
    events = transaction(1, make.event(_T.QUERY, make.query(b"select 1 \\! touch x", STATUS)))
    text, (found,) = script(make.log(events), tmp_path)
    assert "touch" not in text and "is a client command" in found.message


# -- literals ----------------------------------------------------------------------------------------------------------


def shown(column: TableMapColumn, raw: bytes) -> tuple[bytes | None, bytes | None]:
    """(as it is assigned, as a condition)"""
    table = TableMap(1, 0, "db", "t", (column,), None, b"")
    (field,) = RowImageReader(table, (0,)).iter_value_ranges(b"\0" + raw, 0)
    value = (b"\0" + raw)[field.start : field.end]
    budget = DecodeBudget(Limits())
    return format_value_literal(field.column, column, value, budget), format_equality_condition(
        field.column, column, value, budget, is_key=False
    )


def column(type_: int, metadata: int = 0, **more: object) -> TableMapColumn:
    return TableMapColumn(type_, metadata, name="c", **more)  # type: ignore[arg-type]


LATIN1, UTF8, BYTES = {"charset": "latin1"}, {"charset": "utf8mb4"}, {"charset": "binary"}


@pytest.mark.parametrize(
    ("kind", "raw", "assigned", "where"),
    [
        (column(_C.LONG, unsigned=False), b"\xff\xff\xff\xff", b"-1", b"`c` <=> -1"),
        (column(_C.LONG, unsigned=True), b"\xff\xff\xff\xff", b"4294967295", b"`c` <=> 4294967295"),
        (column(_C.LONG), b"\xff\xff\xff\xff", None, None),
        (column(_C.FLOAT, 4), struct.pack("<f", 1.1), b"1.100000023841858e0", b"`c` <=> 1.100000023841858e0"),
        (column(_C.DOUBLE, 8), struct.pack("<d", 1e300), b"1e+300", b"`c` <=> 1e+300"),
        (column(_C.DOUBLE, 8), struct.pack("<d", float("nan")), None, None),
        (column(_C.NEWDECIMAL, 4 << 8 | 2), b"\x8c\x22", b"12.34", b"`c` <=> 12.34"),
        (column(_C.BIT, 9), b"\1\2", b"b'100000010'", b"`c` <=> b'100000010'"),
        (column(_C.YEAR), b"\x7e", b"2026", b"`c` <=> 2026"),
        (column(_C.DATE), b"\0\0\0", b"'0000-00-00'", b"`c` <=> '0000-00-00'"),
        (column(_C.ENUM, 1, values=("x", "y'")), b"\2", b"'y'''", b"`c` <=> 2"),
        (column(_C.ENUM, 1), b"\2", b"2", b"`c` <=> 2"),
        (column(_C.ENUM, 1, values=("",)), b"\0", None, b"`c` <=> 0"),
        (column(_C.SET, 1, values=("x", "y")), b"\3", b"'x,y'", b"`c` <=> 3"),
        (column(_C.SET, 1, values=("x", "y")), b"\4", None, b"`c` <=> 4"),
        (column(_C.VARCHAR, 64, **UTF8), b"\2\xc3\xa9", "'é'".encode(), "CAST(`c` AS BINARY) <=> 'é'".encode()),
        (column(_C.VARCHAR, 64, **LATIN1), b"\1\xe9", "'é'".encode(), b"CAST(`c` AS BINARY) <=> X'e9'"),
        (column(_C.VARCHAR, 64, charset="cp932"), b"\2\x95\x5c", b"_cp932 X'955c'", b"CAST(`c` AS BINARY) <=> X'955c'"),
        (column(_C.VARCHAR, 64, **BYTES), b"\2\0\xff", b"X'00ff'", b"`c` <=> X'00ff'"),
        (column(_C.VARCHAR, 64), b"\1a", None, None),
        (column(_C.STRING, 4, **BYTES), b"\1a", b"X'61000000'", b"`c` <=> X'61000000'"),
        (column(_C.STRING, 16, logical=LogicalType.INET6), b"\1\xfe", b"'fe00::'", b"`c` <=> 'fe00::'"),
        (column(_C.BLOB, 2, **BYTES), b"\0\0", b"X''", b"`c` <=> X''"),
        (column(_C.GEOMETRY, 1), b"\5\0\0\0\0\1", b"X'0000000001'", None),
        (column(_C.JSON, 2), b"\3\0\x05\xff\xff", b"'-1'", None),
        (column(_C.VECTOR, 1), b"\4\0\0\x80\x3f", b"X'0000803f'", None),
    ],
)  # fmt: skip
def test_a_value_is_written_exactly(
    kind: TableMapColumn, raw: bytes, assigned: bytes | None, where: bytes | None
) -> None:
    assert shown(kind, raw) == (assigned, where)


def test_names_and_texts_are_quoted() -> None:
    assert quote_identifier("a`b") == b"`a``b`"
    assert quote_string("'\\\0\n\r\x1a\"é") == "'''\\\\\\0\\n\\r\\Z\"é'".encode()


# -- hostile bytes -----------------------------------------------------------------------------------------------------


def every_kind() -> list[bytes]:
    """Transactions with all that is written, without checksums."""
    parts = [
        (_T.GTID, make.mariadb_gtid(1)), (_T.INTVAR, struct.pack("<BQ", 2, 33)), (_T.RAND, bytes(16)),
        (_T.USER_VAR, struct.pack("<I", 1) + b"s" + b"\0" + struct.pack("<BII", 0, 8, 3) + b"caf"),
        (_T.QUERY, make.query(b"insert into t values ('a') -- b", STATUS)), (_T.TABLE_MAP, MAP),
        (_T.WRITE_ROWS_V1, rows_body(2, row(1, b"a") + row(2, None))),
        (_T.TABLE_MAP, MAP),
        (_T.UPDATE_ROWS_V1, rows_body(2, row(1, b"a") + row(2, None), [[True, True], [True, True]])),
        (_T.XID, bytes(8)), (_T.GTID, make.mariadb_gtid(2, flags=68, more=struct.pack("<iBB", 7, 2, 1) + b"g1b")),
        (_T.TABLE_MAP, PLAIN_MAP), (_T.DELETE_ROWS_V1, rows_body(2, row(2, b"x"))),
        (_T.XA_PREPARE, b"\0" + struct.pack("<iii", 7, 2, 1) + b"g1b"),
    ]  # fmt: skip
    return [make.event(code, body, False) for code, body in parts]


@pytest.mark.parametrize("seed", range(60))
def test_changed_bytes_never_break_the_form_of_the_script(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    events = [bytearray(event) for event in every_kind()]
    for _ in range(chance.randint(1, 4)):
        changed = chance.choice(events)
        byte = chance.choice((0, 1, 0x24, 0x27, 0x5C, 0x80, 0xFF, chance.randrange(256)))
        changed[chance.randrange(19, len(changed))] = byte
    text, _ = script(make.log(map(bytes, events), checksum=False), tmp_path)
    assert text.startswith("# Statements from a log of ") and text.endswith("SET @@session.pseudo_slave_mode=0*/;\n")
    own = text.replace("/*!\\C utf8mb4 */", "")
    assert (
        client_safe_statements.make_client_safe_or_explain(own.encode("utf-8", "surrogateescape"), "utf8mb4", 0)[1]
        is None
    )


def test_the_search_outside_of_quotation_marks_ends_where_one_is_not_closed() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "from binlogtool.formats.binlog_events.sql.client_safe_statements import strip_literals_and_comments\n"
        "print(strip_literals_and_comments(b\"select 1 */*'open\", 'utf8mb4', 0))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "open" not in done.stdout
