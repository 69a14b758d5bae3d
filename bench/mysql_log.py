"""Large binary logs: written by a MariaDB server that runs for the purpose, or, where there is none, made to its shape.

small: transactions of a few single-row statements, events of 160 bytes in the mean. wide: statements over whole tables,
row events of 8 KiB.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import binlogtool
from bench.make import Template, Varying, written
from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.report.dump_output_formats import CompiledLineEncoder, EncodedLines

SERVER = "mariadbd"
INSTALL = "mariadb-install-db"
CLIENT = "mariadb"
PATIENCE = 240.0
"""Seconds after which a log is taken as large as it has become."""

SETTINGS = (
    "--log-bin=log", "--binlog-format=ROW", "--binlog-checksum=CRC32", "--max-binlog-size=1G", "--server-id=1",
    "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-log-file-size=256M",
    "--skip-networking", "--binlog-annotate-row-events=OFF", "--character-set-server=utf8mb4",
)  # fmt: skip

TABLE = """create table account (id int not null auto_increment primary key, k int not null, name varchar(60) not null,
balance decimal(12,2) not null, changed datetime(3) not null, note varchar(200)) engine=InnoDB;
"""
FILL = """insert into account (k, name, balance, changed, note) select seq, concat('user ', seq, repeat('x', seq % 30)),
seq * 1.25, now(3) - interval seq second, if(seq % 3, concat('note ', sha1(seq)), null) from seq_1_to_20000;
"""
SMALL = """create procedure work(n int) begin declare i int default 0; declare x int;
while i < n do set x = 1 + floor(rand() * 20000); start transaction;
update account set k = k + 1, changed = now(3), note = concat(sha1(x), sha1(i), sha1(k)) where id = x;
insert into account (k, name, balance, changed, note) values (i, concat('user ', x), x * 1.25, now(3), sha2(i, 512));
update account set balance = balance - 0.75 where id = last_insert_id();
delete from account where id = last_insert_id() - 5000 and id > 20000;
commit; set i = i + 1; end while; end"""
WIDE = "update account set k = k + 1, note = concat('changed ', md5(rand())), changed = now(3) where id <= 20000;"


@dataclass(frozen=True)
class Made:
    """A log. real: a server has written it."""

    path: Path
    size: int
    events: int
    rows: int
    real: bool


def small(folder: Path, size: int, *, full: bool = False) -> Made:
    """Events of about 160 bytes. full: the log names the columns."""
    return _made(folder, size, "call work(5000);", 1, full)


def wide(folder: Path, size: int, *, full: bool = False) -> Made:
    """Row events of 8 KiB. full: the log names the columns."""
    return _made(folder, size, WIDE, 64, full)


def _made(folder: Path, size: int, statement: str, rows: int, full: bool) -> Made:
    real = installed()
    names = "set global binlog_row_metadata=FULL;" if full else ""
    path = by_server(folder, size, statement, names) if real else synthetic(folder, size, rows)
    return Made(path, path.stat().st_size, *counted(path), real)


def installed() -> bool:
    """Can a server be run here?"""
    return all(map(shutil.which, (SERVER, INSTALL, CLIENT)))


# -- a real server -----------------------------------------------------------------------------------------------------


def by_server(folder: Path, size: int, statement: str, first: str = "") -> Path:
    """Lets the server write about `size` bytes of log with this statement, over and over. first: done before all."""
    until = time.monotonic() + PATIENCE
    with tempfile.TemporaryDirectory(prefix="bench-server-", dir=folder) as home, server(Path(home)) as run:
        run(
            f"{first}create database bench; use bench; {TABLE}{FILL}\n"
            f"delimiter //\n{SMALL}//\ndelimiter ;\nreset master;\n"
        )
        log = Path(home) / "data" / "log.000001"
        while log.stat().st_size < size and time.monotonic() < until:
            run(f"use bench; {statement}")
        run("shutdown;")
        path = folder / log.name
        for _ in range(300):
            if not (Path(home) / "socket").exists():
                break
            time.sleep(0.1)
        shutil.move(log, path)
    return path


@contextmanager
def server(home: Path) -> Iterator[Callable[[str], None]]:
    """A server of its own, with its files in `home`; gives a function that runs statements."""
    data, socket = home / "data", home / "socket"
    me = ["--user=root"] if os.geteuid() == 0 else []
    own = {**os.environ, "TMPDIR": str(home)}  # a server that starts removes the temporary tables of all others there
    subprocess.run(
        [INSTALL, "--no-defaults", *me, f"--datadir={data}", "--skip-test-db"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE, env=own,
    )  # fmt: skip
    command = [SERVER, "--no-defaults", *me, f"--datadir={data}", f"--socket={socket}", *SETTINGS]
    with (home / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors, env=own)

    def run(statements: str) -> None:
        client = [CLIENT, "--no-defaults", *(["-uroot"] if me else []), f"--socket={socket}"]
        subprocess.run(client, input=statements.encode(), check=True, timeout=PATIENCE)

    try:
        wait_for(socket, process)
        yield run
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the server listens."""
    for _ in range(600):
        if socket.exists():
            return
        if process.poll() is not None:
            raise RuntimeError(f"{SERVER} ended with {process.returncode}")
        time.sleep(0.1)
    raise RuntimeError(f"{SERVER} does not listen")


# -- without a server --------------------------------------------------------------------------------------------------

STARTED = 1_795_232_544
VERSION = b"10.11.0-MariaDB-bench"
TABLE_ID = 18
FORMAT_DESCRIPTION, XID, TABLE_MAP, WRITE_ROWS_V1, GTID = 15, 16, 19, 23, 162
EVENT_TYPES = 171
POST_HEADERS = {
    1: 56, 2: 13, 4: 8, 6: 18, 8: 4, 9: 4, 10: 4, 11: 4, 12: 18, 15: 228, 17: 4, 18: 26, 19: 8, 23: 8, 24: 8, 25: 8,
    26: 2, 30: 10, 31: 10, 32: 10, 39: 10, 40: 10, 41: 10, 161: 4, 162: 19, 163: 4, 165: 13, 166: 8, 167: 8, 168: 8,
    169: 10, 170: 10, 171: 10,
}  # fmt: skip
"""What stands in front of the body, by type of event."""

PRIMARY_KEY = b"\x08\x01\x00"
"""Metadata of a table: its key is the first column (binlog_row_metadata=FULL)."""

FIRST_ROW = 1 << 20

Place = tuple[int, int, Callable[[Any], Any]]
"""A place in a body: its offset and width in bytes, and what stands there in events of these numbers."""


def synthetic(folder: Path, size: int, rows: int, *, keyed: bool = False) -> Path:
    """Transactions of one row event with that many rows, in the form of MariaDB's. keyed: the log names the key."""
    path = folder / "log.000001"
    bodies: list[tuple[int, bytes, list[Place]]] = [
        (GTID, struct.pack("<QIB", 1, 0, 12) + bytes(6), [(0, 8, transaction)]),
        (TABLE_MAP, table_map() + (PRIMARY_KEY if keyed else b""), []),
        (WRITE_ROWS_V1, *row_event(rows)),
        (XID, bytes(8), [(0, 8, transaction)]),
    ]
    head = b"\xfebin" + description()
    sizes = [19 + len(body) + 4 for _, body, _ in bodies]
    ends = [len(head) + sum(sizes[: i + 1]) for i in range(len(bodies))]
    group = [event(*one, position(end, sum(sizes))) for one, end in zip(bodies, ends, strict=True)]
    written(path, head, group, FIRST_ROW, size, b"")
    return path


def transaction(numbers: Any) -> Any:
    """Of events: the number of theirs, without holes."""
    return FIRST_ROW + (numbers - FIRST_ROW) // 4


def position(first: int, step: int) -> Callable[[Any], Any]:
    """Where events end; the first one there, each next one `step` bytes on."""
    return lambda numbers: first + (numbers - FIRST_ROW) // 4 * step


def description() -> bytes:
    lengths = bytearray(EVENT_TYPES)
    for kind, length in POST_HEADERS.items():
        lengths[kind - 1] = length
    body = struct.pack("<H50sIB", 4, VERSION, STARTED, 19) + lengths + b"\x01"
    data = header(FORMAT_DESCRIPTION, len(body), 4 + 19 + len(body) + 4) + body
    return data + struct.pack("<I", zlib.crc32(data))


def header(kind: int, body_size: int, end: int = 0) -> bytes:
    return struct.pack("<IBIIIH", STARTED, kind, 1, 19 + body_size + 4, end, 0)


def event(kind: int, body: bytes, numbers: list[Place], end: Callable[[Any], Any]) -> Template:
    """numbers: places in the body (and widths) that depend on the event's number. end: of its end position."""
    data = header(kind, len(body)) + body + bytes(4)
    varying = [Varying(13, 4, little_endian(4, end))]
    varying += [Varying(19 + at, width, little_endian(width, value)) for at, width, value in numbers]
    return Template(data, (0, len(data) - 4), len(data) - 4, "<", zlib.crc32, varying)


def little_endian(width: int, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda numbers: value(numbers).astype("<i8").view("u1").reshape(-1, 8)[:, :width]


def table_map() -> bytes:
    """bench.account (id INT, k INT, name VARCHAR(60), balance DECIMAL(12,2), changed DATETIME(3), note VARCHAR(100))"""
    types = bytes([3, 3, 15, 246, 18, 15])
    metadata = struct.pack("<HBBBH", 240, 12, 2, 3, 400)
    names = b"\x05bench\x00\x07account\x00"
    return struct.pack("<IHH", TABLE_ID, 0, 1) + names + b"\x06" + types + bytes([len(metadata)]) + metadata + b"\x20"


def row_event(rows: int) -> tuple[bytes, list[Place]]:
    """The body with that many rows, and where the numbers of the rows stand."""
    body = struct.pack("<IHHB", TABLE_ID, 0, 1, 6) + b"\x3f"
    numbers: list[Place] = []
    for row in range(rows):
        name = f"user {row:05d}".encode()
        numbers.append((len(body) + 1, 4, row_id(row, rows)))
        body += b"\xe0" if row % 2 else b"\xc0"
        body += struct.pack("<ii", 0, row) + bytes([len(name)]) + name + bytes.fromhex("800001e24019")
        body += bytes.fromhex("99b5ce8a1f0c1c") + (b"" if row % 2 else b"\x28\x00" + b"note of forty bytes " * 2)
    return body, numbers


def row_id(row: int, rows: int) -> Callable[[Any], Any]:
    """The id of a row of an event with that many."""
    return lambda numbers: FIRST_ROW + (numbers - FIRST_ROW) // 4 * rows + row


# -- counting ----------------------------------------------------------------------------------------------------------


def counted(path: Path) -> tuple[int, int]:
    """Events and rows of a log, by its lines of JSON: a row starts with the name of its first image."""
    events = rows = 0
    with binlogtool.open(path, backend="native") as log:
        for part in CompiledLineEncoder().encode_ranges(log.record_ranges()):
            if isinstance(part, EncodedLines):
                data = bytes(part.data)
                events += len(part.record)
                rows += data.count(b'{"before":') + data.count(b'{"after":')
            elif isinstance(part, RecordBlock):
                events += len(part)
                rows += sum(len(body.get("rows", ())) for body in part.bodies if isinstance(body, dict))
    return events, rows
