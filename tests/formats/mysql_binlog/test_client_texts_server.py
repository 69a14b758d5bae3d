"""Texts of statements with all marks of clients in them, through real clients: what comes behind each text is sent.

Of every text that `client.read` lets through, a client must make one statement, with comments kept or not, in binary
mode or not: a statement that is only asked for in the next line arrives by itself, and no command of the client ran.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.formats.binlog_events.sql import client_safe_statements
from binlogtool.formats.binlog_events.values.column_types import charset_of_collation
from tests.formats.mysql_binlog.script_attack import MARKS
from tests.formats.mysql_binlog.server import Programs, Server

BEGINNINGS = (b"SELECT 1 ", b"INSERT INTO d.t VALUES (1) ", b"/* x */ SELECT 1", b"CREATE TABLE q (a int) ")
MOST = 600


def texts(seed: int) -> Iterator[bytes]:
    """Those that are let through, as they are written."""
    chance = random.Random(seed)
    while True:
        pieces = (chance.choice(MARKS) for _ in range(chance.randint(1, 7)))
        text, why = client_safe_statements.make_client_safe_or_explain(
            chance.choice(BEGINNINGS) + b"".join(pieces), "utf8mb4", 0
        )
        if why is None:
            yield text


@pytest.mark.parametrize("seed", range(2))
def test_what_stands_behind_a_text_is_a_statement_of_its_own(programs: Programs, seed: int, tmp_path: Path) -> None:
    script, source = b"DELIMITER /*!*/;\n", texts(seed)
    for number in range(MOST):
        script += client_safe_statements.terminate_statement(
            next(source)
        ) + client_safe_statements.append_statement_end(b"SELECT 'behind %d'" % number)
    options = ("--skip-networking", "--skip-log-bin", "--general-log=1", "--log-output=TABLE")
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as folder,
        Server(Path(folder), *options, programs=programs) as server,
    ):
        assert server.run(b"CREATE DATABASE d; CREATE TABLE d.t (a INT)") == ""
        for ways in (("--comments", "--binary-mode"), ("--skip-comments", "--binary-mode"), ("--comments",), ()):
            assert server.run(b"TRUNCATE mysql.general_log") == ""
            command = [programs.client, "--no-defaults", f"--socket={folder}/s", "-uroot", "--force", *ways]
            subprocess.run(command, input=script, capture_output=True, timeout=120, cwd=tmp_path, check=False)
            query = "SELECT argument FROM mysql.general_log WHERE argument LIKE 'SELECT ''behind %'"
            arrived = [line for line in server.ask(query).splitlines() if "LIKE" not in line]
            assert sorted(arrived) == sorted(f"SELECT 'behind {number}'" for number in range(MOST)), ways
            assert list(tmp_path.iterdir()) == []


def test_the_character_set_of_every_collation_of_a_server_is_known(programs: Programs) -> None:
    table = "collations" if programs.mysql else "collation_character_set_applicability"
    with (
        tempfile.TemporaryDirectory(prefix="bt-") as folder,
        Server(Path(folder), "--skip-networking", "--skip-log-bin", programs=programs) as server,
    ):
        lines = server.ask(f"SELECT id, character_set_name FROM information_schema.{table}").splitlines()
    sets = {int(number): name for number, name in (line.split("\t") for line in lines)}
    assert len(sets) > 250
    assert {number: charset_of_collation(number) for number in sets} == sets
