"""Random bytes through identifiers, strings, comments, user variables and names of databases, in every character set of
clients and several sql_modes, into a real server: what comes back from the script is what the first server had.

The statements are written to the log by the server itself. Around each value stand texts that would run as statements
if a quotation mark, a comment or a delimiter were read wrongly: a table that they drop must still be there.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_state import State, differences, state_of
from tests.formats.mysql_binlog.server_trees import programs_of

CHARSETS = (
    "utf8mb4", "utf8mb3", "latin1", "gbk", "big5", "sjis", "cp932", "gb2312", "euckr", "ujis", "eucjpms", "koi8r",
    "cp1251", "latin2", "greek", "hebrew", "tis620", "swe7", "binary", "ascii", "cp850", "armscii8", "gb18030",
)  # fmt: skip
"""Of clients; gb18030 is MySQL's."""
OTHERS = (
    "dec8", "hp8", "koi8u", "cp1250", "latin5", "cp866", "keybcs2", "macce", "macroman", "cp852", "latin7", "cp1256",
    "cp1257", "geostd8",
)  # fmt: skip
"""The rest of those that a client can have."""
MODES = ("", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES")
WIDE = {
    "gbk": (0x81, 0xFE), "big5": (0xA1, 0xF9), "sjis": (0x81, 0x9F), "cp932": (0x81, 0x9F), "gb18030": (0x81, 0xFE),
}  # fmt: skip
"""First bytes of characters whose second byte may be ASCII."""
PIECES = (
    b"'", b'"', b"`", b"\\", b"\\'", b'\\"', b"/*", b"*/", b"-- ", b"#", b"\n", b"\r", b";", b"$$", b"/*!*/;", b"\0",
    b"\x1a", b"\t", b"DELIMITER x\n", b"\nx\n", b"\n; drop table w.victim; -- ", b"$$\ndrop table w.victim\n$$",
    b"\xff", b"\x80", b"/*!*/;\ndrop table w.victim\n/*!*/;\n", b"\\! touch x", b"\nsystem touch x\n",
    b"*/ drop table w.victim /*", b"%s", b"'; drop table w.victim; --", b"`; drop table w.victim; --",
    b"\\'; drop table w.victim; -- ", b"\n\\C gbk\n", b"x", b"\xe8\xa1\xa8", b"\x95\x5c", b"\x81\x27", b"\xa6\x5c",
    b"\xf0\x9f\x98\x80", b"\xbf\x27", b"\xbf\x5c",
)  # fmt: skip


def random_bytes(chance: random.Random, charset: str) -> bytes:
    parts = []
    for _ in range(chance.randint(0, 6)):
        kind = chance.random()
        if kind < 0.6:
            parts.append(chance.choice(PIECES))
        elif kind < 0.8 and charset in WIDE:
            second = chance.choice((0x5C, 0x40, 0x60, 0x7C, 0x7E, 0x80, 0xA1))
            parts.append(bytes([chance.randint(*WIDE[charset]), second]))
        else:
            parts.append(chance.randbytes(chance.randint(1, 4)))
    return b"".join(parts)


def text_literal(raw: bytes, mode: str, charset: str) -> bytes | None:
    """The bytes between quotation marks in the way of a client that knows its character set; None = it cannot.

    Between ' no byte needs an escape but ' itself and, where they escape, the backslash; each character of two bytes
    stays as it is.
    """
    out, at = b"", 0
    while at < len(raw):
        one = raw[at : at + 1]
        if charset in WIDE and 0x81 <= one[0] <= 0xFE and at + 1 < len(raw):
            out += raw[at : at + 2]
            at += 2
            continue
        if charset in WIDE and one[0] >= 0x80:
            return None
        if one == b"'" or (one == b"\\" and "NO_BACKSLASH" not in mode):
            out += one
        out += one
        at += 1
    return b"'" + out + b"'"


NAMES = (
    b"'", b'"', b"``", b"\\", b"/*", b"*/", b"-- x", b"#", b"\n", b";", b"$$", b"/*!*/;", b"\t", b"%", b"select", b"x",
    b"; drop table w.victim; -- ", b"$$\ndrop table w.victim\n$$", b"\\'",
)  # fmt: skip
"""Parts of names, between backticks."""


def identifier(chance: random.Random, number: int, charset: str) -> bytes:
    """A name of any characters, some of them of the client's own; the server may refuse it."""
    parts = [chance.choice(NAMES) for _ in range(chance.randint(1, 2))]
    if charset in WIDE:
        parts.append(bytes([chance.randint(*WIDE[charset]), chance.choice((0x5C, 0x60, 0x7C, 0x40))]))
    elif charset in ("utf8mb4", "utf8mb3"):
        parts.append(chance.choice(("ä", "表")).encode())
    elif charset not in ("ascii", "swe7", "binary", "greek"):  # of Greek names MySQL itself does not find all columns
        twice = charset in ("gb2312", "euckr", "ujis", "eucjpms")
        parts.append(bytes([chance.randint(0xA1, 0xFE)]) * (1 + twice))
    chance.shuffle(parts)
    return b"`x" + b"".join(parts) + b"%d`" % number


def statements(chance: random.Random, charset: str, mode: str, start: int) -> Iterator[bytes]:
    """What one client sends, each as hexadecimal text of a statement that the server prepares and logs."""
    for number in range(start, start + 3):
        database, table, column = (identifier(chance, number, charset) for _ in range(3))
        raw = random_bytes(chance, charset)
        literal = text_literal(raw, mode, charset)
        if literal is not None:
            comment = chance.choice((b"", b" /* a ' comment \" ` */", b" -- ' \" `\n", b" # ' $$ ;\n"))
            yield b"INSERT INTO w.t (b) VALUES (" + literal + b")" + comment
        yield b"SET @`v%d`=X'%b'" % (number, raw.hex().encode())
        yield b"INSERT INTO w.t (b) VALUES (@`v%d`)" % number
        yield b"CREATE DATABASE " + database
        yield b"USE " + database
        yield (
            b"CREATE TABLE "
            + table
            + b" (id INT PRIMARY KEY, "
            + column
            + b" VARBINARY(300)) COMMENT 'it''s %d'" % number
        )
        yield (
            b"INSERT INTO "
            + table
            + b" VALUES (1, X'%b') /* " % raw.hex().encode()
            + column.replace(b"/", b"")
            + b" */"
        )
        yield b"SET @" + table + b"=X'%b'" % raw.hex().encode()
        yield b"INSERT INTO w.t (b) VALUES (@" + table + b")"
        yield b"USE w"


def sent(server: Server, charset: str, mode: str, seed: int) -> int:
    """Sends them through the protocol as they are, and returns how many the server took.

    A client's own reading of its text is out of play: each statement is a value in hexadecimal, converted to no other
    character set, and executed in the character set of its session.
    """
    chance, taken = random.Random(f"{charset} {mode} {seed}"), 0
    script = b"\\C " + charset.encode() + b"\n" if charset in WIDE else b""
    script += f"USE w;\nSET NAMES {charset};\nSET sql_mode='{mode}';\n".encode()
    delimiter = b"~%08x~" % chance.getrandbits(32)
    script += b"DELIMITER " + delimiter + b"\n"
    for one in statements(chance, charset, mode, seed * 1000):
        script += one + b"\n" + delimiter + b"\n"
        taken += 1
    done = server.talk(script, "--force")
    assert b"gone away" not in done.stderr
    return taken - done.stderr.count(b"ERROR")


SETUP = b"""CREATE DATABASE w; USE w; CREATE TABLE victim (id INT); INSERT INTO victim VALUES (1);
CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, b VARBINARY(2000));
"""


def logged(server: Server, charsets: tuple[str, ...], seed: int) -> tuple[Path, State, int]:
    assert server.run(SETUP) == ""
    taken = sum(sent(server, charset, mode, seed) for charset in charsets for mode in MODES)
    state = state_of(server)
    name = server.logs()[-1][0]
    assert server.run(b"FLUSH BINARY LOGS") == ""
    return server.data / name, state, taken


def held(folder: Path, programs: Programs, charsets: tuple[str, ...], format_: str, seed: int) -> None:
    options = ("--skip-networking", "--log-bin=bin", "--server-id=1", f"--binlog-format={format_}")
    for name in ("a", "b"):
        (folder / name).mkdir()
    with Server(folder / "a", *options, programs=programs) as one:
        log, expected, taken = logged(one, charsets, seed)
        assert taken > 5 * len(charsets)
        script = invoke("dump", "-O", "sql", *(["--without-gtids"] if programs.mysql else []), str(log))
        assert script.code == 0, script.err
    with Server(folder / "b", *options, programs=programs) as other:
        done = other.talk(script.out, "--force")
        found = differences(expected, state_of(other))
    assert done.stderr == b"", done.stderr[:2000]
    assert found == []
    assert not (Path.cwd() / "x").exists()
    assert any(name == "table w.victim" and "row\t1" in lines for name, lines in expected.items())


@pytest.mark.server
@pytest.mark.parametrize("format_", ["STATEMENT", "ROW"])
def test_any_bytes_come_back_from_the_script_and_run_nothing(format_: str) -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    charsets = tuple(one for one in CHARSETS if one != "gb18030")
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        held(Path(folder), Programs(Server.program() or ""), charsets, format_, seed=1)


@pytest.mark.nightly
def test_any_bytes_come_back_in_every_character_set() -> None:
    if Server.program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no mariadbd is installed; BINLOGTOOL_SERVER=1 demands one")
    charsets = tuple(one for one in CHARSETS + OTHERS if one != "gb18030")
    for seed, format_ in ((2, "STATEMENT"), (3, "ROW")):
        with tempfile.TemporaryDirectory(prefix="bt-") as folder:
            held(Path(folder), Programs(Server.program() or ""), charsets, format_, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tree", ["mysql-9", "mariadb-11.8"])
def test_any_bytes_come_back_on_other_servers(tree: str, seed: int) -> None:
    programs = programs_of(tree)
    if programs is None:
        pytest.skip(f"make it with .ci/server-tree {tree}")
    charsets = tuple(one for one in CHARSETS + OTHERS if one != "gb18030")  # clients of MariaDB do not know it
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        held(Path(folder), programs, charsets, "STATEMENT", seed)
