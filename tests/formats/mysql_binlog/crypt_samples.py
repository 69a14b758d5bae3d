"""Real encrypted logs, and what the server itself printed of them."""

from __future__ import annotations

import calendar
import gzip
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from binlogtool.core.open_file import BytesSource, DecryptedSource, read_range
from binlogtool.format_api.layout import BufferDecryptor, RangeReader
from binlogtool.formats.binlog_events.crypt import decrypt
from binlogtool.formats.binlog_events.crypt import keys_and_ciphers as encrypt

HEAD = 4096
MARIA = ("mariadb-10.11", "mariadb-11.8")
MYSQL = "mysql-9.7"

_LINE = re.compile(
    rb"#(\d{6} +\d+:\d\d:\d\d) server id (\d+)  end_log_pos (\d+)(?: CRC32 0x([0-9a-f]{8}))? *\t([A-Za-z_-]+(?: list)?)"
)
_WORDS = {
    "Start": 15, "Ignorable": 164, "Gtid list": 163, "Binlog": 161, "GTID": 162, "Query": 2, "Annotate_rows": 160,
    "Table_map": 19, "Write_rows": 23, "Update_rows": 24, "Delete_rows": 25, "Xid": 16, "Rotate": 4,
}  # fmt: skip
_MYSQL_WORDS = _WORDS | {"GTID": 33, "Previous-GTIDs": 35, "Write_rows": 30, "Update_rows": 31, "Delete_rows": 32}


@dataclass(frozen=True)
class Printed:
    """One event as the server's own tool saw it."""

    time: int
    server_id: int
    end: int
    crc: int | None
    type: int


def printed(path: Path, mysql: bool = False) -> tuple[list[Printed], list[int]]:
    """The events in a text of the server's tool, and all positions that it names."""
    text = gzip.decompress(path.read_bytes())
    found = []
    for stamp, server, end, crc, word in _LINE.findall(text):
        seconds = calendar.timegm(time.strptime(stamp.decode(), "%y%m%d %H:%M:%S"))
        kind = (_MYSQL_WORDS if mysql else _WORDS)[word.decode()]
        found.append(Printed(seconds, int(server), int(end), int(crc, 16) if crc else None, kind))
    return found, [int(at) for at in re.findall(rb"(?m)^# at (\d+)$", text)]


def maria(data: bytes, keyfile: bytes, secret: bytes | None = None) -> Callable[[RangeReader], BufferDecryptor]:
    """The unveiler of a MariaDB log, as the layout makes it."""
    at = 4 + int.from_bytes(data[13:17], "little")
    start = decrypt.parse_start_encryption(data[at:HEAD], at)
    return decrypt.create_mariadb_decryptor_factory(start, encrypt.read_mariadb_key(keyfile, secret), data[:HEAD])


def mysql(data: bytes, keyring: bytes) -> Callable[[RangeReader], BufferDecryptor]:
    """The unveiler of a MySQL log, as the layout makes it."""
    header = decrypt.parse_encryption_header(data[:HEAD])
    return decrypt.create_mysql_decryptor_factory(data[:HEAD], encrypt.read_mysql_master_key(keyring, header.key_id))


def source(data: bytes | bytearray, unveil: Callable[[RangeReader], BufferDecryptor]) -> DecryptedSource:
    """A veiled source over bytes in memory."""
    return DecryptedSource(BytesSource("log", data), unveil)


def plain(data: bytes | bytearray, unveil: Callable[[RangeReader], BufferDecryptor]) -> bytes:
    """All bytes of a log, decrypted in one go."""
    return read_range(source(data, unveil), 0, len(data))


def folder(corpus: Path, server: str) -> Path:
    """Where the encrypted logs of a server are."""
    return corpus / "mysql-binlog" / "generated" / server / "encrypted"


def corpus_log(corpus: Path, server: str, number: int = 1) -> tuple[bytes, Callable[[RangeReader], BufferDecryptor]]:
    """One encrypted log of the corpus and its unveiler."""
    home = folder(corpus, server)
    data = (home / f"enc-bin.{number:06}").read_bytes()
    if server == MYSQL:
        return data, mysql(data, (home / "keyring.json").read_bytes())
    return data, maria(data, (home / "keys.txt").read_bytes())
