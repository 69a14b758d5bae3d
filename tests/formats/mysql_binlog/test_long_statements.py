"""What a statement costs is linear in its length, whatever text it is, and no text is read for ever."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from binlogtool.formats.binlog_events.ddl.executable_comments import executed_text
from binlogtool.formats.binlog_events.ddl.modes import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, in_usual_mode
from binlogtool.formats.binlog_events.ddl.tables import may_define
from binlogtool.formats.binlog_events.ddl.words import after_gap
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.hidden_statements import reason_to_leave_out
from binlogtool.formats.binlog_events.sql.until import Pattern
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.script_attack import BEGINNINGS, PIECES, attack
from tests.harness.mysql_writer import MARIADB, binlog, query, transaction

MODES = (("utf8mb4", 0), ("utf8mb4", ANSI_QUOTES), ("gbk", NO_BACKSLASH_ESCAPES))
LONG = {
    "lines of a comment": b"/* " + b" \n" * 300_000,
    "LOCAL without INFILE": b"SELECT 1; " + b"LOCAL " * 100_000,
    "characters of two bytes behind a dollar sign": b"SELECT $" + b"\xa1\xa1" * 100_000,
    "quotation marks that are not closed": b"CREATE '" + b"\\'" * 100_000,
    "comments that are not closed": b"CREATE TABLE " + b"/*" * 100_000,
    "SET STATEMENT without FOR": b"SET STATEMENT '" + b"\\'" * 100_000,
}
"""Texts of which something quadratic takes minutes, and something exponential for ever."""


def everything(sql: bytes) -> None:
    """Whatever a script asks about a text."""
    for charset, mode in MODES:
        _, reason = client.read(sql, charset, mode)
        client.outside(sql, charset, mode)
        if reason is None:
            reason_to_leave_out(sql, charset, mode)
    client.depends_on_mode(sql, "gb18030")
    client.ended(sql, "gb18030")
    text = sql.decode("latin-1")
    executed_text("/*!50000 */" + text, "8.0.30")
    for _, mode in MODES:
        in_usual_mode(text, mode)
    after_gap(text)
    may_define(sql)
    Pattern("DROP TABLE x").fits(sql, b"d")


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


@pytest.mark.parametrize("what", LONG)
def test_a_long_text_is_gone_through_once(what: str) -> None:
    with at_most(20):
        everything(LONG[what])


def test_texts_that_no_client_reads_are_gone_through_once() -> None:
    """`outside` of what `read` does not let through, and of what another character set or sql_mode makes of it."""
    chance = random.Random(1)
    for _ in range(500):
        text = chance.choice(BEGINNINGS) + b"".join(chance.choice(PIECES) for _ in range(chance.randint(0, 9)))
        with at_most(2):
            everything(text)


def test_a_hostile_log_becomes_a_script_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "bin.000001").write_bytes(attack(1003, 400, MARIADB).log)
    with at_most(60):
        made = invoke("dump", "-O", "sql", "--without-gtids", str(tmp_path / "bin.000001"))
    assert made.code == 1
    assert b" GTID 0-1-400\n" in made.out


def test_many_comments_in_front_of_a_statement_do_not_hold_up_a_flat_script(tmp_path: Path) -> None:
    text = b"/* x */ " * 200 + b"INSERT INTO t VALUES (1)"
    (tmp_path / "bin.000001").write_bytes(binlog(transaction(query(text, b"d"), number=1), MARIADB))
    with at_most(20):
        made = invoke(
            "dump", "-O", "sql", "--transactions", "flatten", "--on-damage", "stop", str(tmp_path / "bin.000001")
        )
    assert made.code == 0
