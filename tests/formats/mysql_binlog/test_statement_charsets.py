"""Texts of statements in the character set that the event names as the client's, by compiled code as by Python."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from binlogtool.core import decode_batches
from tests.cli.invoke import invoke
from tests.harness.mysql_writer import MARIADB, MYSQL, Made, begun, binlog, block, group, query, transaction

QUERY_COMPRESSED = 165
CLIENTS = {
    "gbk": (28, "你好 t"), "latin1": (8, "café €"), "cp1251": (51, "привет"), "sjis": (13, "表 十"),
    "big5": (1, "功能"), "koi8r": (7, "привет"), "utf8mb4": (45, "é 😀"), "utf8mb3": (33, "é"), "euckr": (19, "한글"),
    "ujis": (12, "日本"), "gb18030": (248, "表 㐀"), "greek": (25, "λόγος"), "cp850": (4, "é"),
    "utf8mb4_0900": (255, "é"),
}  # fmt: skip
CODECS = {
    "latin1": "cp1252", "cp1251": "cp1251", "sjis": "shift_jis", "koi8r": "koi8_r", "ujis": "euc_jp", "euckr": "euc_kr",
    "greek": "iso8859_7", "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8mb4_0900": "utf-8",
}  # fmt: skip


def status(client: int, *, before: bytes = b"") -> bytes:
    return b"\0" + bytes(4) + b"\1" + bytes(8) + before + b"\4" + struct.pack("<HHH", client, 45, 8)


def shown(log: Path, *words: str) -> list[object]:
    made = invoke("dump", "-O", "jsonl", *words, str(log))
    lines = [json.loads(line) for line in made.text.splitlines()]
    return [
        line["body"]["sql"] for line in lines if line["type"].startswith("QUERY") and line["body"]["sql"] != "BEGIN"
    ]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_statement_is_shown_in_the_character_set_of_its_client(name: str, compressed: bool, tmp_path: Path) -> None:
    number, text = CLIENTS[name]
    raw = f"insert into t values ('{text}')".encode(CODECS.get(name, name))
    log = tmp_path / "bin.000001"
    own = query(block(raw), b"d", status(number), QUERY_COMPRESSED) if compressed else query(raw, b"d", status(number))
    log.write_bytes(binlog(transaction(own), MARIADB))
    assert shown(log) == shown(log, "--backend", "python") == [f"insert into t values ('{text}')"]
    found = invoke("dump", "--fields", "type", "--where", f"body.sql like '%{text}%'", str(log))
    assert (found.code, found.text.count("QUERY")) == (0, 1)


def test_bytes_that_are_no_text_of_the_character_set_stay_bytes(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    texts = [(28, b"select '\xff\xff'"), (45, b"select '\xe9'"), (63, b"select '\xe9'"), (999, b"select '\xe9'")]
    log.write_bytes(binlog([e for client, sql in texts for e in begun(query(sql, b"d", status(client)))], MYSQL))
    expected = [{"$bytes": sql.hex()} for _, sql in texts]
    assert shown(log) == shown(log, "--backend", "python") == expected


@pytest.mark.parametrize("seed", range(4))
def test_compiled_code_shows_texts_as_python_does(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    chance, log = random.Random(seed), tmp_path / "bin.000001"
    events = []
    for number in range(1, 200):
        client = chance.choice([number for number, _ in CLIENTS.values()] + [63, 999, 2304, 2816, 192, 223, 76])
        sql = chance.choice((b"plain", "é".encode(), b"\xe9", b"\x95\x5c", b"\xd3\xc3", chance.randbytes(3)))
        before = chance.choice((b"", b"\3\1\0\1\0", b"\6\3std", b"\5\6SYSTEM"))
        own = (
            status(client, before=before) if chance.random() < 0.9 else chance.choice((b"", b"\4", b"\6", b"\2\3std\0"))
        )
        events += begun(query(b"select '" + sql + b"'", b"d", own), number=number)
    log.write_bytes(binlog(events, MYSQL))
    assert (
        invoke("dump", "-O", "jsonl", str(log)).out
        == invoke("dump", "-O", "jsonl", "--backend", "python", str(log)).out
    )


def test_the_script_has_the_bytes_of_the_log(tmp_path: Path) -> None:
    raw = "insert into t values ('你好')".encode("gbk")
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(begun(query(raw, b"d", status(28))), MYSQL))
    assert raw in invoke("dump", "-O", "sql", str(log)).out


ANNOTATED = Path(__file__).with_name("annotated_statements.000001")
"""MariaDB 10.11 with binlog_annotate_row_events and clients that said SET NAMES latin1 and SET NAMES gbk."""
ANNOTATIONS = (
    r"INSERT INTO d.t VALUES (1,'Gr\xfc\xdfe')",
    r"INSERT INTO d.t VALUES (2,'\xd6\xd0\xce\xc4\xb1\xed')",
    r"INSERT INTO d.m VALUES (2,'\xd6\xd0\xce\xc4\xb1\xed')",
    r"INSERT INTO d.t VALUES (3,'Gr\xfc\xdfe')",
    "INSERT INTO d.t VALUES (4,'Küche')",
    "CREATE TABLE d.n AS SELECT 1 AS a, '中文' AS b",
)
"""The last two follow a SAVEPOINT and a CREATE TABLE of their transactions, which name the character set."""


def test_the_statement_of_rows_is_shown_by_the_character_set_of_its_transaction() -> None:
    script = invoke("dump", "-O", "sql", "--comments", str(ANNOTATED)).text.splitlines()
    assert tuple(line[4:] for line in script if line.startswith("#Q> ")) == ANNOTATIONS
    assert sum("the log does not name the character set" in line for line in script) == 4
    text = invoke("dump", "-v", str(ANNOTATED)).text
    assert [one for one in ANNOTATIONS if f"\n    {one}\n" not in text] == []
    assert text.count("(the log does not name the character set of this statement)") == 4
    made = invoke("convert", "--to", "jsonl", "--envelope", "debezium", "--include-query", "-o", "-", str(ANNOTATED))
    messages = [json.loads(line)["value"] for line in made.text.splitlines()]
    assert tuple(one["source"]["query"] for one in messages if one.get("op")) == ANNOTATIONS


def test_mysql_names_the_character_set_of_rows_at_the_beginning_of_their_transaction(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    events = group(query(b"BEGIN", b"d", status(28)), Made(29, b"\x06" + "表 你好".encode("gbk")), Made(16, bytes(8)))
    log.write_bytes(binlog([*events, *begun(Made(29, b"\x02\xb1\xed"), number=2)], MYSQL))
    script = invoke("dump", "-O", "sql", "--comments", str(log)).text
    assert "\n#Q> 表 你好\n" in script and "\n#Q> \\xb1\\xed\n" in script


@pytest.mark.parametrize("number", [576, 577, 578, 579, 608, 609, 610, 611, 2048, 2304])
def test_a_script_holds_statements_of_every_collation_that_mariadb_11_8_has_for_utf8(
    number: int, tmp_path: Path
) -> None:
    """579 is that of the DROP TEMPORARY TABLE that the server itself writes at the end of a session."""
    log = tmp_path / "bin.000001"
    own = query("insert into t values ('é')".encode(), b"d", status(number))
    log.write_bytes(binlog(transaction(own), MARIADB))
    made = invoke("dump", "-O", "sql", str(log))
    assert (made.code, f"character_set_client={number}," in made.text) == (0, True)
    assert "\ninsert into t values ('é')\n" in made.text


@pytest.mark.parametrize(
    "text",
    ["SET NAMES gbk", "set character set latin1", "SET @a=1, NAMES utf8mb4", "/**/SET @@session.character_set_client=8",
     "SET SESSION collation_connection=latin1_bin", "set sql_mode=''"],
)  # fmt: skip
def test_a_set_that_changes_how_later_statements_are_read_is_left_out(text: str, tmp_path: Path) -> None:
    """Servers log no SET: the session of each statement is in its event."""
    log = tmp_path / "bin.000001"
    events = [begun(query(sql, b"d", status(28)), number=n) for n, sql in enumerate((text.encode(), b"insert 1"), 1)]
    log.write_bytes(binlog([one for group in events for one in group], MYSQL))
    made = invoke("dump", "-O", "sql", str(log))
    assert made.code == 1 and "servers never log SET" in made.err
    assert f"\n{text}\n" not in made.text and "\ninsert 1\n" in made.text


@pytest.mark.parametrize(
    "text", ["SET PASSWORD FOR names='*1'", "SET @a='names'", "SET STATEMENT sql_mode='' FOR DO 1"]
)
def test_other_sets_stay_in_the_script(text: str, tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(begun(query(text.encode(), b"d", status(28))), MYSQL))
    made = invoke("dump", "-O", "sql", str(log))
    assert made.code == 0 and f"\n{text}\n" in made.text
