"""Logs of hostile statements, and what clients send of the scripts that are made of them.

Each statement of a log has a number, so that what a client sends can be held against what the log has. The server that
records (`recording_server`) refuses some SET statements, and gives its clients wrong status flags after others, as
stored functions of a log can make it do.
"""

from __future__ import annotations

import random
import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli.invoke import invoke
from tests.formats.mysql_binlog.recording_server import (
    ANSI_QUOTES,
    ANSI_QUOTES_STATUS,
    NO_BACKSLASH,
    NO_BACKSLASH_STATUS,
    RecordingServer,
)
from tests.formats.mysql_binlog.server import Programs
from tests.harness.mysql_writer import MARIADB, Made, begun, binlog, query, transaction

MARKS = (
    b"/*", b"*/", b"/*!", b"/*M!", b"/*+", b"/*!50000 ", b"/*!99999 ", b"/*M!100100 ", b"'", b'"', b"`", b"\\",
    b"\\!touch x\n", b"\\C gbk ", b"\\N", b"\\u d ", b"\\g", b"\\G", b"\\c", b"\\d x ", b"#", b"-- ", b"--", b"--\n",
    b"--\1 ", b"\n", b" ", b"1", b"a", b",", b"/", b"*", b"!", b"/*!*/;", b"\ndelimiter x\n", b"\nDELIMITER", b"$$",
    b"\nsystem touch x\n", b"\nsource y\n", b"''", b'""', b"\\'", b"\t", b"SELECT 2", b"(", b")", b"-", b"+", b"$a$",
)  # fmt: skip
"""Marks of clients."""
PIECES = (
    *MARKS, b"\\. y\n", b"\n/*!*/;\n", b'\\"', b"\\`", b"``", b"$", b"\0", b"\\\0", b"\r\n", b"\r", b"\xff",
    b"\x95\x5c", b"\xbf\x27", b"\x81\x27", b"\xa6\x5c", "表".encode(), b"\x81\x30\x81\x30", b";", b"; ", b"$$#$$",
    b"$$ -- $$", b"'\n,'", b"?", b"go", b"\ntee x\n", b"\nuse d\n", b"system touch x", b"\\\n",
)  # fmt: skip
BEGINNINGS = (
    b"SELECT ", b"INSERT INTO d.t VALUES (", b"/* x */ SELECT ", b"CREATE TABLE q (a int) ", b"/*!50003 CREATE*/ ", b"",
    b"/* ", b"# ", b"-- ", b"update d.t set a=", b"SELECT /*+ ", b"/* x */\n", b"/* ?\n", b"LOAD DATA ", b"(select ",
)  # fmt: skip
CHARSETS = (45, 45, 45, 33, 8, 28, 1, 13, 95, 248, 63)
"""Collations of clients: utf8mb4, utf8mb3, latin1, gbk, big5, sjis, cp932, gb18030, binary."""
REFUSED = (0, 35, 54, 60, 999)
MODES = (0, 0, NO_BACKSLASH, ANSI_QUOTES, ANSI_QUOTES | NO_BACKSLASH, 1168113696, NO_BACKSLASH | 1 << 28)
NUMBER = re.compile(rb"N(\d+)N")
OWN = re.compile(
    rb"(?:SET [@A-Z_a-z ][^'\"\\]*|SET @@session\.sql_mode='[A-Z_,]*'|START TRANSACTION|BEGIN|COMMIT|ROLLBACK|USE `?d`?"
    rb"|/\*!\d+ SET .*\*/|BINLOG '[A-Za-z0-9+/=\n]*'|SET [^'\"\\]*'[\w:+,=.-]*'[^'\"\\]*|select \$\$|"
    rb"select @@version_comment limit 1|SELECT DATABASE\(\)|SET NAMES \w+|#.*)\s*\Z",
    re.DOTALL,
)
"""What a script has beside the statements of its log, and a client beside those of its script."""


_USE = re.compile(rb"(?:/\*! \*/)?(?:/\*!USE\*/|USE) (?:`(.*)`|([\w$.\x80-\xff-]+))\s*\Z", re.DOTALL)
"""Of the script, or what a client makes of it."""


class Attack(NamedTuple):
    """A log, its texts by number, and the names of its databases."""

    log: bytes
    texts: dict[int, bytes]
    databases: frozenset[bytes] = frozenset()


def texts(chance: random.Random) -> Iterator[bytes]:
    """Texts of statements, with a number in each of them."""
    number = 0
    while True:
        number += 1
        own = [piece(chance) for _ in range(chance.randint(0, 7))]
        own.insert(chance.randint(0, len(own)), b" N%dN " % number)
        yield chance.choice(BEGINNINGS) + b"".join(own)


def piece(chance: random.Random) -> bytes:
    """A mark of a client, or something closed that has such marks inside."""
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(PIECES)
    inside = b"".join(chance.choice(PIECES) for _ in range(chance.randint(0, 4)))
    if kind < 0.8:
        mark = chance.choice((b"'", b"'", b'"', b"`"))
        return mark + inside.replace(mark, mark + mark) + mark
    begin, end = chance.choice(
        (
            (b"/*", b"*/"),
            (b"/*!", b"*/"),
            (b"/*+", b"*/"),
            (b"$$", b"$$"),
            (b"$a$", b"$a$"),
            (b"#", b"\n"),
            (b"-- ", b"\n"),
        )
    )
    return begin + inside.replace(end, b"") + end


def status(chance: random.Random) -> bytes:
    """Status variables: flags, sql_mode, character sets."""
    client = chance.choice(CHARSETS) if chance.random() < 0.97 else chance.choice(REFUSED)
    mode = b"\1" + struct.pack("<Q", chance.choice(MODES)) if chance.random() < 0.97 else b""
    return b"\0" + struct.pack("<I", 0) + mode + b"\4" + struct.pack("<HHH", client, 45, 8)


def attack(seed: int, count: int, server: str, *, zeros: bool = True) -> Attack:
    """A log of this many statements. zeros: bytes that clients take in binary mode only, too."""
    chance, source = random.Random(seed), texts(random.Random(seed + 1))
    made, events, databases = dict[int, bytes](), list[Made](), set[bytes]()
    around = transaction if server == MARIADB else begun
    for number in range(1, count + 1):
        made[number] = next(source) if zeros else next(source).replace(b"\0", b"")
        database = database_name(chance) if chance.random() < 0.1 else b""
        database = database if zeros else database.replace(b"\0", b"")
        databases.add(database)
        events += around(query(made[number], database, status(chance)), number=number)
    return Attack(binlog(events, server), made, frozenset(databases))


def database_name(chance: random.Random) -> bytes:
    """Of all that a statement can have inside, too."""
    return b"".join(chance.choice(PIECES) for _ in range(chance.randint(1, 5)))


_NOT_ASCII = bytes(range(128, 256))
"""Clients leave out what is no character at the end of a statement."""


def essence(text: bytes) -> bytes:
    """What is left of a statement without spaces and without all signs that comments are made of."""
    same = re.sub(rb"\\(?:0|(?=\r?[\n\0]))", b"", text)  # a script has none there, or `0` for the zero
    return re.sub(rb"[\s\0/*!M+#-]|(?<=[!*])\d+", b"", same).rstrip(_NOT_ASCII)


class Sent(NamedTuple):
    """What a client sent: foreign = what is in no log and no script; wrong = (number, text) that differ."""

    statements: list[bytes]
    foreign: list[bytes]
    wrong: list[tuple[bytes, bytes]]
    missing: list[int]
    files: list[str]


def send(
    script: bytes,
    own: Attack,
    left_out: set[int],
    programs: Programs,
    options: tuple[str, ...],
    seed: int,
    *,
    calm: bool,
) -> Sent:
    """Pipe a script into a client. calm: the server refuses nothing and its flags are right."""
    chance = random.Random(seed)

    def refuses(text: bytes) -> bool:
        if text == b"select $$":
            return True
        plain = re.fullmatch(rb"SET @@session\.sql_mode=(?:'[A-Z_,]*'|\d+)|SET NAMES \w+", text) is not None
        return not calm and not plain and text[:4] == b"SET " and chance.random() < 0.2

    def disturbed(flags: int) -> int:
        return flags ^ chance.choice((0, 0, 0, NO_BACKSLASH_STATUS, ANSI_QUOTES_STATUS)) if not calm else flags

    version = "9.7.4" if programs.mysql else "5.5.5-11.8.9-MariaDB"
    if programs.mysql:
        options = ("--commands", "--system-command", *options)
    else:
        options = ("--skip-ssl", *options)
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/dev/shm") as folder:
        with RecordingServer(Path(folder) / "s", version, refuses, disturbed) as server:
            command = [programs.client, "--no-defaults", f"--socket={folder}/s", "-uroot", "--force", *options]
            (Path(folder) / "empty").mkdir()
            empty = Path(folder) / "empty"
            subprocess.run(command, input=script, capture_output=True, timeout=120, cwd=empty, check=False)
            files = [path.name for path in empty.iterdir()]
        return judged(server.statements, own, left_out, files)


def judged(statements: list[bytes], own: Attack, left_out: set[int], files: list[str]) -> Sent:
    """Hold what was sent against the log."""
    foreign, wrong, seen = list[bytes](), list[tuple[bytes, bytes]](), set[int]()
    names = {name.replace(b"\r\n", b"\n") for name in own.databases}  # so do clients that are not in binary mode
    rest = [essence(text).replace(b"\\", b"") for number, text in own.texts.items() if number not in left_out]
    for text in statements:
        found, use = NUMBER.search(text), _USE.match(text)
        if use is not None and (use[1] or use[2]).replace(b"``", b"`").replace(b"\r\n", b"\n") in names:
            continue
        if found is None:
            plain = essence(text).replace(b"\\", b"").rstrip(_NOT_ASCII)
            if plain and OWN.match(text) is None and not any(is_part(plain, one) for one in rest):
                foreign.append(text)
            continue
        number = int(found[1])
        if number in seen or number in left_out or not is_same(text, own.texts[number]):
            wrong.append((text, own.texts[number]))
        seen.add(number)
    missing = [n for n, text in own.texts.items() if n not in left_out | seen and not is_in_comment(text)]
    return Sent(statements, foreign, wrong, missing, files)


def is_same(sent: bytes, expected: bytes) -> bool:
    """Is what was sent what the log has, perhaps without its comments?"""
    if b"/*" in expected or b"#" in expected or b"--" in expected:
        own, other = (essence(text).replace(b"\\", b"").rstrip(_NOT_ASCII) for text in (sent, expected))
        return is_part(own, other)
    return essence(sent) == essence(expected)


def is_part(sent: bytes, expected: bytes) -> bool:
    """Are the bytes the others, of which some are left out?"""
    rest = iter(expected)
    return all(byte in rest for byte in sent)


def is_in_comment(text: bytes) -> bool:
    """May the number of a text be in a comment of it, which clients can leave out?"""
    return re.search(rb"(?:/\*|#|--).*N\d+N", text, re.DOTALL) is not None


def script_of(own: Attack, folder: Path, name: str = "bin.000001") -> tuple[bytes, set[int]]:
    """The script of a log, and the numbers of the statements that it says it leaves out."""
    log = folder / name
    log.write_bytes(own.log)
    made = invoke("dump", "-O", "sql", "--without-gtids", str(log))
    script = made.out if isinstance(made.out, bytes) else made.out.encode()
    places = [int(found[1], 16) for found in re.finditer(r" error 0x([0-9a-f]+) payload-undecodable", made.err)]
    return script, {number for place in places for number in numbers_at(own.log, place)}


def numbers_at(log: bytes, place: int) -> list[int]:
    """The number of the statement whose event stands at an offset."""
    if not 4 <= place < len(log) - 19:
        return []
    size = int.from_bytes(log[place + 9 : place + 13], "little")
    return [int(found[1]) for found in NUMBER.finditer(log[place : place + size])]
