"""What a text of a statement costs is linear in its length, whatever text it is."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from binlogtool.formats.binlog_events.changes.row_event_table_reader import is_row_changing_statement
from binlogtool.formats.binlog_events.ddl import split_sql_statements
from binlogtool.formats.binlog_events.ddl.parse_ddl import parse_ddl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    ANSI_QUOTES,
    NO_BACKSLASH_ESCAPES,
    find_next_word_offset,
    is_too_short_for_keyword,
    rewrite_to_default_quotes,
    strip_ignored_comments,
)
from binlogtool.formats.binlog_events.ddl.table_dependencies import ForeignKeys, Triggers
from binlogtool.formats.binlog_events.replay.event_effects import parse_primary_key
from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.sql.client_safe_statements import (
    explain_why_not_sendable,
    is_stored_program_definition,
)
from binlogtool.formats.binlog_events.sql.flashback import find_affected_tables, get_statement_verb
from binlogtool.formats.binlog_events.sql.script_state import StatementPattern, find_mentioned_database
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.script_attack import BEGINNINGS, PIECES, attack
from tests.harness.mysql_writer import MARIADB

TEXTS = {
    "lines of a comment": (b"/* ", b" \n", b""),
    "lines of comments": (b"", b"/* x */\n", b""),
    "lines of spaces": (b"", b" \n", b"x"),
    "comments that a client ends elsewhere": (b"", b"/*/*\n", b""),
    "lines that begin with DELIMITER": (b"", b"\ndelimiter x", b""),
    "lines that begin with DELIMITER, in strings": (b"select ", b"'\ndelimiter x\n' ", b""),
    "LOCAL without INFILE": (b"select 1; ", b"local ", b""),
    "INFILE without LOCAL": (b"select 1; ", b"infile ", b""),
    "characters of two bytes behind a dollar sign": (b"select $", b"\xa1\xa1", b""),
    "dollar signs": (b"select ", b"$", b""),
    "words behind dollar signs": (b"select ", b" $a", b""),
    "dollar signs behind characters of two bytes": (b"select ", b"\xa1\xa1$", b""),
    "escapes in a string that is not closed": (b"create '", b"\\'", b""),
    "escapes in strings that are not closed": (b"create ", b"'\\", b""),
    "doubled marks in a string that is not closed": (b"create '", b"''", b""),
    "doubled marks in a name that is not closed": (b"create table `", b"``", b""),
    "names that are not closed": (b"drop table ", b"`a` , ", b"`"),
    "quotation marks of all kinds": (b"select ", b"'\"`", b""),
    "comments that are not closed": (b"create table ", b"/*", b""),
    "executed comments that are not closed": (b"create table ", b"/*!", b""),
    "comments that are closed twice": (b"create table ", b"/*!*/*/", b""),
    "SET STATEMENT without FOR": (b"set statement '", b"\\'", b""),
    "SET STATEMENT again and again": (b"", b"set statement a=1 for ", b""),
    "CREATE behind comments": (b"", b"/* x */ ", b"CREATE TABLE t (a int) START TRANSACTION"),
    "START TRANSACTION again and again": (b"create table t ", b") start transaction ", b"x"),
    "blocks": (b"create procedure p() ", b"begin case ", b"; call p(); end"),
    "ends of blocks": (b"create procedure p() begin call p(); ", b"end ", b""),
    "ends of blocks, with spaces": (b"create procedure p() begin call p(); end", b" ", b"x"),
    "loops": (b"create procedure p() begin call p(); ", b"do ", b""),
    "handlers": (b"create procedure p() begin call p(); declare a handler for ", b"a, ", b"begin"),
    "definers": (b"create definer=", b"a@", b" procedure p() call p(); call q()"),
    "spaces": (b"create ", b" ", b"x"),
    "indexes": (b"create index i ", b" on ``", b"x"),
    "columns": (b"create table t (", b"a int, ", b"b int)"),
    "keys": (b"create table t (a int, ", b"key (a), ", b"primary key (a))"),
    "tables": (b"drop table ", b"a.b, ", b"c"),
    "renames": (b"rename table ", b"a to b, ", b"c to d"),
    "brackets": (b"create table t ", b"(", b""),
    "engines": (b"alter table t ", b"engine  ", b""),
    "triggers": (b"create ", b"or replace ", b"trigger t"),
    "tables of a trigger": (b"create trigger t before insert ", b"or insert ", b"x"),
    "words": (b"", b"a ", b""),
    "backslashes": (b"select ", b"\\", b""),
    "dashes": (b"select ", b"--", b"\n"),
}  # fmt: skip
"""What a text begins with, what is repeated until it is long, and what it ends with. What is quadratic takes minutes
for 64 KiB and hours for 1 MiB."""

MODES = (("utf8mb4", ANSI_QUOTES), ("gbk", NO_BACKSLASH_ESCAPES), ("gb18030", 0))


def for_clients(sql: bytes) -> None:
    """Whatever a script asks about a text before it is written."""
    for charset, mode in MODES:
        _, reason = client_safe_statements.make_client_safe_or_explain(sql, charset, mode)
        client_safe_statements.strip_literals_and_comments(sql, charset, mode)
        client_safe_statements.is_same_without_backslash_escapes(sql, charset, mode)
        client_safe_statements.is_sql_mode_dependent(sql, charset)
        is_stored_program_definition(sql, charset, mode)
        if reason is None:
            explain_why_not_sendable(sql, charset, mode)
    client_safe_statements.terminate_statement(sql, "gb18030")
    find_mentioned_database(sql, {"a": "b"})
    StatementPattern("DROP TABLE x").matches(sql, b"d")


def for_tables(sql: bytes) -> None:
    """Whatever is asked about what a text says of tables."""
    text = sql.decode("latin-1")
    strip_ignored_comments("/*!50000 */" + text, "8.0.30")
    for _, mode in MODES:
        rewrite_to_default_quotes(text, mode)
    find_next_word_offset(text)
    is_too_short_for_keyword(text)
    ddl = parse_ddl(text, "d")
    is_row_changing_statement(ddl)
    find_affected_tables(ddl, ["d.t"])
    get_statement_verb(text)
    Triggers().apply_statement(ddl)
    ForeignKeys().apply_statement(ddl)
    split_sql_statements.may_be_ddl_statement(sql)
    split_sql_statements.mentions_any_table(text, "d", ["d.t"])
    str(ddl.can_engine_roll_back)
    parse_primary_key(text)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fail when the processor was used for longer than that."""

    def stop(*_: object) -> None:
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def read_long(what: str, size: int, seconds: float) -> None:
    begins, piece, ends = TEXTS[what]
    for read in (for_clients, for_tables):
        with at_most(seconds):
            read(begins + piece * (size // len(piece)) + ends)


@pytest.mark.full
@pytest.mark.parametrize("what", TEXTS)
def test_a_long_text_is_gone_through_once(what: str) -> None:
    read_long(what, 1 << 16, 4)


@pytest.mark.nightly
@pytest.mark.parametrize("what", TEXTS)
def test_a_text_of_one_mib_is_gone_through_once(what: str) -> None:
    read_long(what, 1 << 20, 60)


def test_texts_that_no_client_reads_are_gone_through_once() -> None:
    """`outside` of what `read` does not let through, and of what another character set or sql_mode makes of it."""
    chance = random.Random(1)
    for _ in range(200):
        text = chance.choice(BEGINNINGS) + b"".join(chance.choice(PIECES) for _ in range(chance.randint(0, 9)))
        with at_most(2):
            for_clients(text)
            for_tables(text)


def test_a_hostile_log_becomes_a_script_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "bin.000001").write_bytes(attack(1003, 400, MARIADB).log)
    with at_most(60):
        made = invoke("dump", "-O", "sql", "--without-gtids", str(tmp_path / "bin.000001"))
    assert made.code == 1
    assert b" GTID 0-1-400\n" in made.out


def test_the_lines_of_leading_comments_are_those_that_a_client_looks_at() -> None:
    """Held against the client's own way, which looks at all of the text before a line again and again."""
    chance = random.Random(2)
    pieces = (b"/*", b"*/", b"/", b"*", b" ", b"\n", b"\n", b"a", b"help", b"use d", b"\t", b"!", b"# ", b"\0")
    for _ in range(20_000):
        text = b"".join(chance.choice(pieces) for _ in range(chance.randint(1, 12)))
        assert client_safe_statements._find_client_command(text) == command_by_lines(text), text


def command_by_lines(text: bytes) -> bytes | None:
    text, at = b"/*! */" + text, 0
    for line in text.split(b"\n"):
        opened = text.rfind(b"/*", 0, at)
        is_plain = opened >= 0 and text[opened + 2] not in b"!+" and b"*/" not in text[opened + 2 : at]
        if client_safe_statements._find_end_of_leading_comments(text[:at]) == at and not is_plain:
            word = client_safe_statements._match_command_word(line)
            if word is not None:
                return word
        at += len(line) + 1
    return client_safe_statements._match_command_word(text)
