"""Binary logs of all kinds that scripts are made of: each written by a real server that runs for the purpose."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.formats.mysql_binlog.server import Programs, Server
from tests.formats.mysql_binlog.server_trees import TREES, programs_of

PATIENCE = 240.0
"""Seconds after which a log is taken as large as it has become."""

ROWS = 5000
_USUAL = {"binlog_format": "'ROW'", "binlog_row_metadata": "'MINIMAL'", "binlog_checksum": "'CRC32'"}
_COMPRESSED = {"binlog_transaction_compression": "OFF", "log_bin_compress": "OFF"}
"""Of MySQL, of MariaDB."""

_ACCOUNT = """create table account (id int not null auto_increment primary key, k int not null,
name varchar(60) not null, balance decimal(12,2) not null, changed datetime(3) not null,
note varchar(200)) engine=InnoDB;
"""
_TYPES = (
    "int", "bigint unsigned", "varchar(40)", "decimal(14,4)", "datetime(6)", "double", "date", "varbinary(20)",
    "char(12)", "smallint", "timestamp(3) null", "text",
)  # fmt: skip
_VALUES = (
    "n * 7", "n * 1000000007", "concat('wide ', n)", "n / 7", "now(6)", "n / 3", "curdate()",
    "unhex(left(sha2(n, 256), 40))",
    "concat('c', n)", "n % 30000", "now(3)", "concat('text of ', n, ' and so on')",
)  # fmt: skip
COLUMNS = 60


def _wide() -> str:
    columns = ", ".join(f"c{i} {_TYPES[i % len(_TYPES)]}" for i in range(COLUMNS))
    values = ", ".join(_VALUES[i % len(_VALUES)] for i in range(COLUMNS))
    return f"""create table wide (id int not null auto_increment primary key, {columns}) engine=InnoDB//
create procedure fill_wide(n int) begin while n > 0 do insert into wide values (null, {values}); set n = n - 1;
end while; end//
create procedure wide(n int) begin declare x int; while n > 0 do set x = 1 + floor(rand() * 500);
update wide set c0 = c0 + 1, c2 = concat('changed ', n) where id = x;
insert into wide select null, {", ".join(f"c{i}" for i in range(COLUMNS))} from wide where id = x;
delete from wide where id = last_insert_id(); set n = n - 1; end while; end//
"""


_PROCEDURES = """create procedure fill_account(n int) begin declare i int default 1; while i <= n do
insert into account values (null, i, concat('user ', i, repeat('x', i % 30)), i * 1.25, now(3),
if(i % 3, concat('note ', sha2(i, 224)), null)); set i = i + 1; end while; end//
create procedure account(n int, several int) begin declare i int default 0; declare x int;
while i < n do set x = 1 + floor(rand() * 5000); if i % several = 0 then start transaction; end if;
update account set k = k + 1, changed = now(3), note = concat(sha2(x, 224), sha2(i, 256)) where id = x;
insert into account (k, name, balance, changed, note) values (i, concat('user ', x), x * 1.25, now(3), sha2(i, 512));
update account set balance = balance - 0.75 where id = last_insert_id();
delete from account where id = last_insert_id() - 5000 and id > 20000;
set i = i + 1; if i % several = 0 then commit; end if; end while; end//
"""
_LARGE = "update account set k = k + 1, note = concat('changed ', sha2(k, 224)), changed = now(3) where id <= 5000;"


@dataclass(frozen=True)
class Kind:
    """How a log is written. settings: global variables; work: what is done over and over; share: of the usual size."""

    name: str
    work: str
    settings: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0


_FULL = {"binlog_row_metadata": "'FULL'"}
_SMALL, _WORK_WIDE = "call account(2000, 1);", "call wide(500);"
_PACKED = {"binlog_transaction_compression": "ON", "log_bin_compress": "ON"}
_BARE = {"binlog_checksum": "'NONE'"}
_TEXT = {"binlog_format": "'STATEMENT'"}
KINDS = (
    Kind("small transactions", _SMALL),
    Kind("small transactions, full metadata", _SMALL, _FULL),
    Kind("small transactions, no checksums", _SMALL, _FULL | _BARE),
    Kind("big transactions", "call account(4000, 4000);"),
    Kind("big transactions, full metadata", "call account(4000, 4000);", _FULL),
    Kind("8 KiB events", _LARGE),
    Kind("8 KiB events, full metadata", _LARGE, _FULL),
    Kind("wide tables", _WORK_WIDE),
    Kind("wide tables, full metadata", _WORK_WIDE, _FULL),
    Kind("statements", _SMALL, _TEXT),
    Kind("compressed transactions", "call account(500, 25);", _FULL | _PACKED, 1 / 4),
)
LARGE = (Kind("small transactions", _SMALL), Kind("8 KiB events", _LARGE))


ABSENT = {"mariadb": "mariadbd or mariadb-binlog is not installed"} | {
    name: f"no tree: .ci/server-tree {name}" for name in TREES
}
"""Why a server is not there."""


def servers() -> dict[str, Programs | None]:
    """The servers by name; None = it, or its tool, is not there."""
    own = Server.program()
    programs = Programs(own) if own and shutil.which("mariadb-binlog") else None
    return {"mariadb": programs} | {name: programs_of(name) for name in TREES}


@contextmanager
def writing(folder: Path, name: str, programs: Programs) -> Iterator[Callable[[Kind, int], Path]]:
    """A server that runs as long; gives what makes a log of a kind, of about so many bytes."""
    home = folder / "s"
    home.mkdir()
    options = ["--log-bin=log", "--max-binlog-size=1G", "--server-id=1", "--sync-binlog=0", "--skip-networking"]
    options += ["--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4", "--innodb-doublewrite=0"]
    if programs.mysql:
        options += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
    with Server(home, *options, programs=programs) as server:
        _ready(server)
        yield partial(_written, server, folder / f"{name}.000001")
    shutil.rmtree(home)


@contextmanager
def kept(folder: Path, name: str, programs: Programs, shelf: Path) -> Iterator[Callable[[Kind, int], Path]]:
    """The same, but logs that stand on the shelf are taken from there; the server runs only if one is missing."""
    write: Callable[[Kind, int], Path] | None = None
    with ExitStack() as running:

        def log(kind: Kind, size: int) -> Path:
            nonlocal write
            place = shelf / f"{name} {kind.name} {size}.000001"
            if not place.exists():
                write = write or running.enter_context(writing(folder, name, programs))
                shutil.move(write(kind, size), place)
            return place

        yield log


def _written(server: Server, path: Path, kind: Kind, size: int) -> Path:
    _set(server, _USUAL | _COMPRESSED | dict(kind.settings))
    _checked(server, "flush binary logs;")
    last = server.data / server.logs()[-1][0]
    until = time.monotonic() + PATIENCE
    while last.stat().st_size < size and time.monotonic() < until:
        _checked(server, f"use bench; {kind.work}")
    _checked(server, "flush binary logs;")
    shutil.copy(last, path)
    return path


def _ready(server: Server) -> None:
    """The tables and what works on them."""
    _checked(server, f"create database bench; use bench; {_ACCOUNT}\ndelimiter //\n{_PROCEDURES}{_wide()}")
    fill = f"start transaction; call fill_account({ROWS}); call fill_wide(500); commit;"
    _checked(server, f"use bench; set sql_log_bin=0; {fill}")


def _set(server: Server, settings: Mapping[str, str]) -> None:
    known = {line.split("\t")[0] for line in server.ask("show global variables").splitlines()}
    made = "".join(f"set global {name}={value};" for name, value in settings.items() if name in known)
    _checked(server, made)


def _checked(server: Server, script: str) -> None:
    said = server.run(script.encode())
    if said:
        raise RuntimeError(said)
