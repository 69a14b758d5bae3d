"""Scripts of `dump -O sql` as their user sees them: what stands first, what is left out and told, where they stop."""

from __future__ import annotations

import base64
import dataclasses
import re
import struct
from pathlib import Path

import pytest

from binlogtool.formats.binlog_events.sql.script_state import StatementPattern
from binlogtool.formats.binlog_events.wire_format import EventFlag, EventType
from tests.cli.invoke import Result, invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.start_contents import Log
from tests.formats.mysql_binlog.starts import logs_of
from tests.formats.mysql_binlog.statement_events import MAP, STATUS, insert, transaction

_T = EventType
MAPPED = make.event(_T.TABLE_MAP, MAP)


def statement(sql: bytes, db: bytes = b"db", flags: int = 0) -> bytes:
    return make.event(_T.QUERY, make.query(sql, STATUS, db), flags=flags)


def ddl(number: int, sql: bytes, db: bytes = b"db") -> list[bytes]:
    return [make.event(_T.GTID, make.mariadb_gtid(number, flags=1)), statement(sql, db)]


def dumped(folder: Path, events: list[bytes], *options: str, version: bytes = make.MARIADB) -> Result:
    path = folder / "mariadb-bin.000001"
    path.write_bytes(make.log(events, version))
    return invoke("dump", "-O", "sql", *options, str(path))


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.full_corpus
def test_the_format_description_stands_before_all_transactions(corpus: Path) -> None:
    text = invoke("dump", "-O", "sql", str(corpus / "found/servers/mysql97-minimal/bin.000001")).text
    parts = ("\nROLLBACK\n", "\nBINLOG '\n", "gtid_next='AUTOMATIC'", "gtid_next='5f7b11db", "\nBEGIN\n", "\nCOMMIT\n")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.rindex("gtid_next='AUTOMATIC'") > text.rindex("\nCOMMIT\n")


def test_no_gtid_is_set_where_another_format_description_follows(tmp_path: Path) -> None:
    """MySQL 9.7 refused its BINLOG otherwise (ERROR 1837): checksums were switched off between the two logs."""
    folder = logs_of("mysql-9", "closed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000002").read_bytes())
    without = dataclasses.replace(log.with_body(0, log.events[0].body[:-1] + b"\0"), has_checksums=False)
    (folder / "bin.000002").write_bytes(without.write())
    text = invoke("dump", "-O", "sql", str(folder / "bin.000001"), str(folder / "bin.000002")).text
    found = re.findall(r"^(?:SET @@session.gtid_next='AUTOMATIC|COMMIT|BINLOG '\n[^']*?8BAAAA)", text, re.MULTILINE)
    kinds = [match[:6] for match in found]
    second = kinds.index("BINLOG", kinds.index("COMMIT"))
    assert kinds[second - 2 : second + 2] == ["COMMIT", "SET @@", "BINLOG", "SET @@"]


def test_rows_are_the_logs_own_bytes_until_their_statement_ends(tmp_path: Path) -> None:
    body = bytearray(insert(1, b"a")[19:-4])
    body[6] = 0  # its statement goes on
    first, last = make.event(_T.WRITE_ROWS_V1, bytes(body), position=77), insert(2, b"b")
    text = dumped(tmp_path, transaction(1, MAPPED, first, last)).text
    (found,) = re.findall(r"# at \d+ WRITE_ROWS_V1\nBINLOG '\n([^']*)'", text)
    assert b"".join(map(base64.b64decode, found.split())) == MAPPED + first + last


def test_a_transaction_without_an_end_is_rolled_back_before_the_next_one_begins(tmp_path: Path) -> None:
    events = [*transaction(1, MAPPED, insert(1, b"a"))[:-1], *transaction(2, MAPPED, insert(2, b"b"))]
    text = dumped(tmp_path, events).text
    assert re.findall(r"^(START TRANSACTION|ROLLBACK|COMMIT|BINLOG)", text, re.MULTILINE) == [
        "ROLLBACK", "BINLOG", "START TRANSACTION", "BINLOG", "ROLLBACK", "START TRANSACTION", "BINLOG", "COMMIT",
    ]  # fmt: skip


def test_each_transaction_gets_its_number_also_where_two_domains_have_the_same(tmp_path: Path) -> None:
    one = make.event(_T.GTID, make.mariadb_gtid(5, domain=1))
    other = make.event(_T.GTID, make.mariadb_gtid(5, domain=2))
    end = make.event(_T.XID, bytes(8))
    text = dumped(tmp_path, [one, MAPPED, insert(1, b"a"), end, other, MAPPED, insert(2, b"b"), end]).text
    assert text.count("@@session.gtid_seq_no=5\n") == 2


def test_comments_show_the_rows_in_lines_that_nobody_can_break(tmp_path: Path) -> None:
    text = dumped(tmp_path, transaction(1, MAPPED, insert(1, b"a\n'\x1b[2J")), "--comments").text
    shown = [line for line in text.split("\n") if line.startswith("###")]
    assert shown == ["### INSERT INTO `db`.`t`", "### SET", "###   `id`=1", '###   `n``me`="a\\n\'\\u001b[2J"']


@pytest.mark.parametrize(
    ("charset", "number", "text"),
    [("gbk", 28, b"\x81\x5c"), ("big5", 1, b"\xa5\x5c"), ("sjis", 13, b"\x83\x5c")],
)
def test_the_client_is_told_of_each_change_of_the_character_set(
    charset: str, number: int, text: bytes, tmp_path: Path
) -> None:
    wide = STATUS[:14] + struct.pack("<BHHH", 4, number, 45, 8)
    one = make.event(_T.QUERY, make.query(b"insert into t values ('" + text + b"')", wide))
    other = statement(b"insert into t values ('\xe4\xb8\xad\\\\')")
    told = re.findall(r"\\C (\w+) ", dumped(tmp_path, transaction(1, one, other, one)).out.decode("latin-1"))
    assert told == ["utf8mb4", charset, "utf8mb4", charset, "utf8mb4"]


def test_a_text_in_gb18030_that_clients_of_mariadb_would_end_elsewhere_is_left_out(tmp_path: Path) -> None:
    """MariaDB's clients do not know gb18030 (\\C gb18030: "Charset is not found"), and read on in the one before."""
    status = STATUS[:14] + struct.pack("<BHHH", 4, 248, 45, 8)
    texts = (b"insert into t values ('\x81\x5c', 'a\\'b')", b"insert into t values ('\x81\x61')")
    events = [make.event(_T.QUERY, make.query(text, status)) for text in texts]
    done = dumped(tmp_path, [*transaction(1, events[0]), *transaction(2, events[1])])
    assert done.code == 1 and done.err.count("clients disagree about where its quotation marks and comments end") == 1
    assert texts[0] not in done.out and texts[1] in done.out


def test_a_client_that_does_not_know_gb18030_is_not_left_in_another_character_set(tmp_path: Path) -> None:
    """A client of MariaDB that stays in sjis sees no backslash in `\xa1\x81\x5c`; in gb18030 and utf8mb4 it is one."""
    texts = {13: b"insert into t values ('\x95\x5c')", 248: b"insert into t values ('\xa1\x81\\'')"}
    made = [
        make.event(_T.QUERY, make.query(text, STATUS[:14] + struct.pack("<BHHH", 4, number, 45, 8)))
        for number, text in texts.items()
    ]
    done = dumped(tmp_path, transaction(1, *made))
    told = re.findall(r"\\C (\w+) ", done.out.decode("latin-1"))
    assert done.code == 0 and told == ["utf8mb4", "sjis", "utf8mb4", "gb18030", "utf8mb4"]


def test_names_with_newlines_reach_the_server_and_not_the_client(tmp_path: Path) -> None:
    done = dumped(tmp_path, transaction(1, statement(b"insert into t values (1)", b"a\n`b")))
    assert done.code == 0 and "\n/*! *//*!USE*/ `a\n``b`\n/*!*/;\n" in done.text


@pytest.mark.parametrize(
    "text",
    [b"insert into `a\\\nb` values (1)", b"insert into `a\\\nb` values ('it''s') /* \\ */", b"drop table `a\\\n`, `c`"],
)
def test_a_name_with_a_backslash_at_the_end_of_a_line_is_written_where_clients_keep_it(
    text: bytes, tmp_path: Path
) -> None:
    """MySQL's client sends it without the backslash, unless sql_mode has NO_BACKSLASH_ESCAPES."""
    done = dumped(tmp_path, transaction(1, statement(text), statement(b"insert into t values (2)")))
    assert done.code == 0
    around = [one.strip() for one in done.out.split(b"\n/*!*/;\n")]
    at = around.index(text)
    assert around[at - 1] == b"SET @@session.sql_mode=1048576"
    assert around[at + 1] == b"SET @@session.sql_mode=0"


@pytest.mark.parametrize(
    "text",
    [
        b"insert into `a\\\nb` values ('it\\'s')",
        b"create procedure `a\\\nb`() select 1",
        b'insert into `a\\\nb` values ("\\n")',
    ],
)
def test_a_text_that_no_sql_mode_makes_clients_read_alike_is_left_out(text: bytes, tmp_path: Path) -> None:
    done = dumped(tmp_path, transaction(1, statement(text)))
    assert done.code == 1 and "` at byte " in done.err and text not in done.out


def mysql_transaction(number: int, *events: bytes) -> list[bytes]:
    times = (1_795_232_366_307_818 + number).to_bytes(7, "little")
    gtid = make.event(_T.GTID_LOG, make.mysql_gtid(number, more=times + b"\x80" + struct.pack("<I", 90704)))
    return [gtid, make.event(_T.QUERY, make.query(b"BEGIN", STATUS)), *events, make.event(_T.XID, bytes(8))]


@pytest.mark.parametrize("options", [(), ("--without-gtids",)])
@pytest.mark.parametrize("mysql", [False, True])
def test_compiled_code_writes_the_same_script(mysql: bool, options: tuple[str, ...], tmp_path: Path) -> None:
    one = mysql_transaction if mysql else transaction
    events = [e for n in range(1, 200) for e in one(n, MAPPED, insert(n, b"a"), MAPPED, insert(n, b"b" * (n % 9)))]
    events += [*transaction(200, statement(b"insert into t values (1)")), *one(201, MAPPED, insert(7, b"c"))]
    version = make.MYSQL if mysql else make.MARIADB
    general = dumped(tmp_path, events, "--backend", "python", *options, version=version)
    compiled = dumped(tmp_path, events, "--backend", "native", *options, version=version)
    assert (compiled.code, compiled.out) == (general.code, general.out)
    assert general.text.count("BINLOG") == 400 and ("gtid_next='3e11" in general.text) == (mysql and not options)


# -- what is left out --------------------------------------------------------------------------------------------------


def test_rows_without_their_table_map_are_told(tmp_path: Path) -> None:
    done = dumped(tmp_path, transaction(1, insert(1, b"a")))
    assert done.code == 1 and "its TABLE_MAP is missing" in done.err


def test_statements_are_told_where_an_object_is_chosen(tmp_path: Path) -> None:
    events = [*transaction(1, MAPPED, insert(1, b"a")), *transaction(2, statement(b"update t set a = 1"))]
    done = dumped(tmp_path, events, "--object", "db.t")
    assert done.code == 1 and "1 statement was left out: --object" in done.err
    assert done.text.count("BINLOG") == 2 and "update" not in done.text
    assert "gtid" not in done.text  # a part of a transaction has not the identity of the whole


def test_a_database_is_chosen_by_the_default_database_of_statements(tmp_path: Path) -> None:
    own, other = statement(b"insert into a values (1)"), statement(b"insert into b values (1)", b"other")
    done = dumped(tmp_path, [*transaction(1, own), *transaction(2, other)], "--database", "db")
    assert done.code == 0 and "into a" in done.text and "into b" not in done.text
    assert done.text.count("START TRANSACTION") == done.text.count("COMMIT\n") == 1
    across = statement(b"insert into db.c values (1)", b"other")
    done = dumped(tmp_path, transaction(1, own, across), "--database", "db")
    assert done.code == 1 and "--database selects statements by their default database" in done.err


def test_the_end_of_a_damaged_log_says_what_is_missing(tmp_path: Path) -> None:
    lost = insert(2, b"b")
    data = make.log([*transaction(1, MAPPED, insert(1, b"a"), lost), *transaction(2, MAPPED, insert(3, b"c"))])
    at = data.index(lost) + 25
    path = tmp_path / "mariadb-bin.000001"
    path.write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
    done = invoke("dump", "-O", "sql", str(path))
    assert done.code == 1
    last = done.text.rindex("pseudo_slave_mode=0")
    assert f"# left out here: {path}: bytes {data.index(lost)} to " in done.text[last:]


# -- files of LOAD DATA ------------------------------------------------------------------------------------------------

LOADED = b"load data infile '/tmp/x' into table t (a)"


def load(number: int = 7) -> list[bytes]:
    start, end = LOADED.index(b" infile"), LOADED.index(b" table")
    body = make.query(LOADED, STATUS)
    places = struct.pack("<IIIB", number, start, end, 2)
    return [
        make.event(_T.BEGIN_LOAD_QUERY, struct.pack("<I", number) + b"1\n"),
        make.event(_T.APPEND_BLOCK, struct.pack("<I", number) + b"2\n"),
        make.event(_T.EXECUTE_LOAD_QUERY, body[:13] + places + body[13:]),
    ]


def test_the_data_of_load_data_go_to_a_file(tmp_path: Path) -> None:
    done = dumped(tmp_path, transaction(1, *load()), "--load-files", str(tmp_path / "files"))
    assert done.code == 0, done.err
    path = tmp_path / "files" / "load-000001"
    assert path.read_bytes() == b"1\n2\n"
    assert f"\nload data LOCAL INFILE '{path}' REPLACE INTO table t (a)\n" in done.text


def test_the_files_stand_beside_an_output(tmp_path: Path) -> None:
    out = tmp_path / "all.sql"
    assert dumped(tmp_path, transaction(1, *load()), "-o", str(out)).code == 0
    assert (tmp_path / "all.sql.load" / "load-000001").read_bytes() == b"1\n2\n"
    again = dumped(tmp_path, transaction(1, *load()), "--overwrite", "-o", str(out))
    assert again.code != 0 and "is not empty" in again.err


def test_a_conversion_that_is_refused_leaves_no_files(tmp_path: Path) -> None:
    path, out = tmp_path / "mariadb-bin.000001", tmp_path / "all.sql"
    path.write_bytes(make.log([*transaction(1, *load()), *transaction(2, insert(1, b"a"))]))
    done = invoke("convert", "--to", "sql", "-o", str(out), str(path))
    assert done.code == 1 and [one.name for one in tmp_path.iterdir()] == [path.name]


def test_load_data_without_its_beginning_is_told(tmp_path: Path) -> None:
    done = dumped(tmp_path, transaction(1, *load()[1:]), "--load-files", str(tmp_path / "files"))
    assert done.code == 1 and "the beginning of the file is missing" in done.err
    assert "LOCAL INFILE" not in done.text


# -- where it stops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "sql", "db"),
    [
        ("DROP TABLE shop.orders", b"DROP TABLE IF EXISTS `orders` /* generated by server */", b"shop"),
        ("drop table shop.orders", b"drop  table\n shop . orders", b""),
        ("DROP TABLE shop.orders", b"DROP TABLE a, `shop`.`orders`", b"other"),
        ("DROP TABLE shop.orders", b"/* app */ drop temporary table orders", b"shop"),
        ("DELETE FROM shop.orders", b"delete from orders where id > 1", b"shop"),
        ("TRUNCATE TABLE `shop`.`o``x`", b"truncate table `o``x`", b"shop"),
        ("DROP DATABASE shop;", b"drop database if exists shop", b""),
    ],
)
def test_a_statement_is_like_another(pattern: str, sql: bytes, db: bytes) -> None:
    assert StatementPattern(pattern).matches(sql, db)


@pytest.mark.parametrize(
    ("pattern", "sql", "db"),
    [
        ("DROP TABLE shop.orders", b"DROP TABLE orders", b"other"),
        ("DROP TABLE shop.orders", b"DROP TABLE orders2", b"shop"),
        ("DROP TABLE shop.orders", b"insert into t values ('DROP TABLE shop.orders')", b"shop"),
        ("DROP TABLE shop.orders", b"DROP VIEW orders", b"shop"),
        ("DROP TABLE shop.orders", b"", b"shop"),
    ],
)
def test_a_statement_is_not_like_another(pattern: str, sql: bytes, db: bytes) -> None:
    assert not StatementPattern(pattern).matches(sql, db)


def test_the_script_stops_before_the_statement(tmp_path: Path) -> None:
    events = [
        *transaction(1, statement(b"insert into orders values (1)")),
        *ddl(2, b"drop table orders"),
        *transaction(3, statement(b"insert into orders values (3)")),
    ]
    done = dumped(tmp_path, events, "--stop-before", "DROP TABLE db.orders")
    assert done.code == 0 and "values (1)" in done.text
    assert "values (3)" not in done.text and "drop table" not in done.text.lower().split("\n# ")[0]
    assert re.search(r"stopped before DROP TABLE db\.orders at mariadb-bin\.000001:\d+, GTID 0-1-2, ", done.err)
    assert "the last transaction before it is GTID 0-1-1" in done.err


def test_a_statement_inside_a_transaction_stops_before_the_transaction(tmp_path: Path) -> None:
    events = transaction(1, statement(b"insert into a values (1)"), statement(b"delete from orders"))
    text = dumped(tmp_path, events, "--stop-before", "delete from db.orders").text
    assert re.findall(r"^(START TRANSACTION|ROLLBACK|COMMIT)", text, re.MULTILINE) == [
        "ROLLBACK", "START TRANSACTION", "ROLLBACK",
    ]  # fmt: skip


@pytest.mark.parametrize("words", ["delete from orders", "DELETE FROM shop.orders"])
def test_the_statement_of_row_events_stops_before_the_transaction(words: str) -> None:
    """The DELETE of the guides' log is row events of 0-1-7 with an annotation that does not name the database."""
    guide = str(Path(__file__).parents[2] / "corpus/guides/mariadb")
    done = invoke("dump", "-O", "sql", "--stop-before", words, guide)
    assert done.code == 0
    assert re.search(r"stopped before .* at mariadb-bin\.000002:\d+, GTID 0-1-7, ", done.err)
    assert "the last transaction before it is GTID 0-1-6" in done.err
    assert done.text.count("\nCOMMIT\n") == 3
    other = invoke("dump", "-O", "sql", "--stop-before", "delete from stock", guide)
    assert (other.code, "the log has no such statement" in other.err) == (1, True)


def test_nothing_to_stop_before_is_told(tmp_path: Path) -> None:
    done = dumped(tmp_path, transaction(1, MAPPED, insert(1, b"a")), "--stop-before", "drop table x")
    assert done.code == 1 and "the log has no such statement" in done.err and done.text.count("COMMIT\n") == 1


def test_a_create_database_is_no_use(tmp_path: Path) -> None:
    text = dumped(tmp_path, [statement(b"create database db", flags=EventFlag.SUPPRESS_USE)]).text
    assert "USE" not in text
