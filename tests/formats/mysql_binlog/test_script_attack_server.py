"""Scripts of hostile logs, through the clients of MariaDB and MySQL: each statement that a client sends is one of the
log or one that the script makes, none is left out without a word, and no program runs."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import script_attack
from tests.formats.mysql_binlog.server import Programs, Server
from tests.harness.mysql_writer import MARIADB, MYSQL, Made, binlog, query, transaction

WAYS = (
    (("--comments", "--binary-mode"), False),
    (("--skip-comments", "--binary-mode"), True),
    (("--comments",), True),
    (("--skip-comments",), False),
)
ATTACKS = (
    b"/*! */system touch x",
    b"system touch x",
    b"* 1 '\n/*!*/;\n\\! touch x\n'",
    b"/* c */\nsystem touch x\n",
    b"/* ?\n\\! touch x\n*/ select 1",
    b"/* go\n\\! touch x\n*/ select 1",
    b"select /*+ \\! touch x\n*/ 1",
    b"select 1 $$#$$'\n,'",
    b"select '\n/*!*/;\n\\! touch x\n'",
    b"select 1 $$ -- $$'\n,'",
    b"select '\\' , '\n/*!*/;\n\\! touch x\n'",
    b'select "\\" , "\n/*!*/;\n\\! touch x\n"',
    b"select '\\\0' , '\n/*!*/;\n\\! touch x\n'",
    b"select `a\\\n`, '\n/*!*/;\n\\! touch x\n'",
    b"/*!50003 CREATE*/ \nDELIMITER'--\n' '--\n\\! touch x\n",
    b"/* x */ DELIMITERx",
    b"/*! \ntee x\n*/ select 1",
    b"/*!a\ntee y\n \ntee x\n*/ select 1",
)
"""Texts with which one of the clients ran a program or lost its place: MySQL 9 with --commands --system-command, as
they are on in 8.0, or MariaDB's."""


@pytest.mark.parametrize("seed", [100, 101])
def test_clients_send_the_statements_of_a_hostile_log_and_nothing_else(
    seed: int, programs: Programs, tmp_path: Path
) -> None:
    hold_client(programs, seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6001, 6036))
def test_clients_send_the_statements_of_21000_hostile_texts_and_nothing_else(
    seed: int, programs: Programs, tmp_path: Path
) -> None:
    hold_client(programs, seed, tmp_path)


def hold_client(programs: Programs, seed: int, folder: Path) -> None:
    """Hold what a client sends of the script of a log against the log: 300 texts, with zero bytes and without."""
    server = MARIADB if seed % 2 else MYSQL
    for zeros in (True, False):
        own = script_attack.attack(seed, 300, server, zeros=zeros)
        script, left_out = script_attack.script_of(own, folder)
        for ways, calm in WAYS[:2] if zeros else WAYS:
            sent = script_attack.send(script, own, left_out, programs, ways, seed, calm=calm)
            assert (sent.foreign, sent.wrong, sent.missing, sent.files) == ([], [], [], []), ways
            assert len(sent.statements) > 200


@pytest.mark.parametrize("mode", [0, script_attack.NO_BACKSLASH, script_attack.ANSI_QUOTES])
def test_no_text_runs_a_program_in_a_client(mode: int, programs: Programs, tmp_path: Path) -> None:
    """Also with --force where SET is refused, and where the client has the flags of another sql_mode."""
    made = {number: text + b" /* N%dN */" % number for number, text in enumerate([*ATTACKS, *ATTACKS], 1)}
    status = b"\0\0\0\0\0\1" + mode.to_bytes(8, "little") + b"\4" + b"\x2d\0\x2d\0\x08\0"
    events = [e for number, text in made.items() for e in transaction(query(text, b"", status), number=number)]
    own = script_attack.Attack(binlog(events, MARIADB), made)
    script, left_out = script_attack.script_of(own, tmp_path)
    for ways, calm in (
        ((), False),
        ((), True),
        (("--comments",), False),
        (("--binary-mode", "--skip-comments"), False),
    ):
        for seed in range(3):
            sent = script_attack.send(script, own, left_out, programs, ways, seed, calm=calm)
            assert (sent.foreign, sent.wrong, sent.files) == ([], [], []), (ways, seed)


NAMES = (
    b"a\n\\! touch x\nb", b"a\\\n\\! touch x\nb", b"a\n", b"a\\\0\n\\! touch x\n`\n\\! touch x\n", b"a' \\! touch x\n",
    b"a' \\! touch x", b"a*/ \nsystem touch x\n", b"x\n*/ system touch x\n`", b"\\", b"$$'", b"/*!*/;\n\\! touch x\n",
    b"-- \n", b"`", b'"', b"a;b", b"a/*b", b"a\\\n`\n\\! touch x\n",
)  # fmt: skip
"""Of databases and variables. With the first one a client of MySQL without --binary-mode ran the program: it takes USE
for a command of its own, and of that the first line."""


@pytest.mark.parametrize("name", NAMES)
def test_names_in_statements_of_the_script_run_nothing(name: bytes, programs: Programs, tmp_path: Path) -> None:
    number = len(name).to_bytes(4, "little") + name + b"\0\0" + struct.pack("<IIQB", 63, 8, 42, 0)
    made = {1: b"insert into t values (N1N)"}
    variable = [] if b"\0" in name else [Made(14, number)]
    status = b"\0\0\0\0\0\1" + bytes(8) + b"\4" + b"\x2d\0\x2d\0\x08\0"
    own = script_attack.Attack(binlog(transaction(*variable, query(made[1], name, status)), MARIADB), made)
    script, left_out = script_attack.script_of(own, tmp_path)
    assert left_out == set()
    quoted = b"`" + name.replace(b"`", b"``") + b"`"
    for ways in (("--binary-mode",), ("--binary-mode", "--skip-comments"), *([] if b"\0" in name else [()])):
        sent = script_attack.send(script, own, left_out, programs, ways, 0, calm=True)
        assert (sent.wrong, sent.missing, sent.files) == ([], [], [])
        assert [text[-len(quoted) :] for text in sent.statements if b"USE" in text] == [quoted], ways
        assert any(text.startswith(b"SET @" + quoted + b":=") for text in sent.statements) == bool(variable), ways


@pytest.mark.server
@pytest.mark.parametrize(
    "text",
    [
        b"LOAD DATA LOCAL INFILE '%b' INTO TABLE d.t",
        b"/*!50000 LOAD*/ DATA /* x */ LOCAL INFILE '%b' INTO TABLE d.t",
        b"SELECT 1; LOAD DATA LOW_PRIORITY LOCAL INFILE '%b' INTO TABLE d.t",
        b"SET STATEMENT max_statement_time=0 FOR LOAD DATA LOCAL INFILE '%b' INTO TABLE d.t",
        b"EXECUTE IMMEDIATE 'LOAD DATA LOCAL INFILE ''%b'' INTO TABLE d.t'",
        b"BEGIN NOT ATOMIC EXECUTE IMMEDIATE 'LOAD DATA LOCAL INFILE ''%b'' INTO TABLE d.t'; END",
        b"PREPARE x FROM 'LOAD DATA LOCAL INFILE ''%b'' INTO TABLE d.t'; EXECUTE x",
        b"CREATE PROCEDURE d.p() EXECUTE IMMEDIATE 'LOAD DATA LOCAL INFILE ''%b'' INTO TABLE d.t'; CALL d.p()",
    ],
)
def test_a_file_of_the_client_is_not_sent(text: bytes, tmp_path: Path) -> None:
    """MariaDB takes each of these texts from a client and loads the file (shown first)."""
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    secret, log = tmp_path / "secret", tmp_path / "bin.000001"
    secret.write_text("42\n")
    sql = text % str(secret).encode()
    log.write_bytes(binlog(transaction(query(sql, b"d", b"\4\x2d\0\x2d\0\x08\0")), MARIADB))
    made = invoke("dump", "-O", "sql", str(log))
    assert made.code == 1 and "payload-undecodable: QUERY cannot be written as a statement: " in made.err
    with Server(tmp_path / "s") as server:
        assert server.run(b"CREATE DATABASE d; CREATE TABLE d.t (a INT)") == ""
        server.talk(made.out, "--force", "--local-infile=1")
        assert server.ask("SELECT COUNT(*) FROM d.t").strip() == "0"
        server.talk(b"DELIMITER ~~\n" + sql + b"\n~~\n", "--local-infile=1")
        assert server.ask("SELECT COUNT(*) FROM d.t").strip() == "1"


def test_a_server_logs_what_a_call_executes_and_not_the_call(programs: Programs, tmp_path: Path) -> None:
    """So nothing of a real log is missing where CALL is left out of scripts."""
    script = b"""CREATE DATABASE d; USE d; CREATE TABLE t (a INT);
DELIMITER ~~
CREATE PROCEDURE p(x INT) INSERT INTO t VALUES (x)~~
CREATE PROCEDURE q() BEGIN CALL p(1); PREPARE z FROM 'INSERT INTO t VALUES (2)'; EXECUTE z; END~~
CALL q()~~
CALL p(3)~~
"""
    for form in ("STATEMENT", "ROW"):
        options = ("--skip-networking", "--log-bin=bin", "--server-id=1", f"--binlog-format={form}")
        with Server(tmp_path / form, *options, programs=programs) as server:
            assert server.run(script) == ""
            assert server.ask("SELECT a FROM d.t ORDER BY a").split() == ["1", "2", "3"]
            name = server.logs()[-1][0]
            assert server.run(b"FLUSH BINARY LOGS") == ""
            made = invoke("dump", "-O", "sql", "--without-gtids", str(server.data / name))
        assert made.code == 0
        assert not re.search(rb"^(?:/\*.*\*/)?(?:CALL|EXECUTE|PREPARE)\b", made.out, re.MULTILINE | re.IGNORECASE)
        assert b"CREATE DEFINER" in made.out and made.out.count(b"BINLOG '" if form == "ROW" else b"INSERT INTO") >= 3
