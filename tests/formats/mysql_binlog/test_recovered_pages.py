"""Pages of InnoDB after crash recovery: what the redo log changes, made from the specification of its records alone."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import crc32c
import pytest

from binlogtool.format_api.layout import RangeReader
from binlogtool.formats.innodb.pages_after_redo import RecoveredPages, UnknownPageError
from binlogtool.formats.innodb.prepared_transactions import PreparedTransactions, read_prepared_transactions
from binlogtool.formats.innodb.redo_log import RedoLog
from binlogtool.formats.innodb.tablespace_pages import Tablespace
from tests.formats.mariadb_innodb_binlog.redo_make import (
    checkpoint,
    file_checkpoint,
    header,
    mtr,
    record,
    varint,
    write,
)
from tests.formats.mysql_binlog.starts import logs_of

PAGE, SPACE, NUMBER, FIRST = 4096, 7, 3, 12288
SIZE = FIRST + 8192


def reader(data: bytes) -> RangeReader:
    return lambda offset, size: data[offset : offset + size]


def page_on_disk(lsn: int, content: bytes) -> bytes:
    head = bytes(4) + NUMBER.to_bytes(4, "big") + b"\xff" * 8 + lsn.to_bytes(8, "big") + b"\0\x06" + bytes(8)
    page = (head + SPACE.to_bytes(4, "big") + content).ljust(PAGE - 4, b"\0")
    return page + crc32c.crc32c(page).to_bytes(4, "big")


def redo_log(*bodies: bytes) -> RedoLog:
    data, lsn = b"", FIRST
    for body in (*bodies, file_checkpoint(FIRST)):
        end = lsn if body == file_checkpoint(FIRST) else 0
        data += mtr(body, lsn, FIRST, SIZE - FIRST)
        lsn = FIRST + len(data)
    head = header(FIRST).ljust(4096, b"\0") + checkpoint(FIRST, end).ljust(8192, b"\0")
    return RedoLog(reader((head + data).ljust(SIZE, b"\0")), SIZE)


def recovered(disk: bytes, *bodies: bytes) -> bytes:
    spaces = {SPACE: Tablespace(reader(bytes(NUMBER * PAGE) + disk), PAGE, True)}
    return RecoveredPages(spaces, redo_log(*bodies)).read_recovered_pages([(SPACE, NUMBER)])[SPACE, NUMBER]


HERE = varint(SPACE) + varint(NUMBER)
CHANGES = {
    "write": ([write(SPACE, NUMBER, 40, b"new")], b"abnewfgh"),
    "other page": ([write(SPACE, NUMBER + 1, 40, b"new")], b"abcdefgh"),
    "memset": ([record(0x40, HERE + varint(39) + varint(5) + b"xy")], b"axyxyxgh"),
    "memmove back": ([record(0x50, HERE + varint(38) + varint(2) + varint((4 - 1) * 2))], b"efcdefgh"),
    "in order": ([write(SPACE, NUMBER, 38, b"zz"), write(SPACE, NUMBER, 39, b"y")], b"zycdefgh"),
    "new page": ([record(0x10, HERE) + record(0xB0, varint(40 - 24) + b"v")], b"\0\0v\0\0\0\0\0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_records_of_the_redo_log_change_a_page(name: str) -> None:
    bodies, content = CHANGES[name]
    assert recovered(page_on_disk(0, b"abcdefgh"), *bodies)[38:46] == content


def test_records_that_are_older_than_the_page_are_not_applied() -> None:
    assert recovered(page_on_disk(FIRST + 1, b"abcd"), write(SPACE, NUMBER, 38, b"zz"))[38:42] == b"abcd"


@pytest.mark.parametrize("body", [record(0x00, HERE), record(0x20, HERE + b"\7"), write(SPACE, NUMBER, 4095, b"zz")])
def test_a_page_that_is_freed_or_changed_in_an_unknown_way_is_unknown(body: bytes) -> None:
    with pytest.raises(UnknownPageError):
        recovered(page_on_disk(0, b"abcd"), body)


def test_a_torn_page_is_unknown_unless_the_redo_log_makes_it() -> None:
    torn = page_on_disk(0, b"abcd")[:-1] + b"\x99"
    with pytest.raises(UnknownPageError):
        recovered(torn, write(SPACE, NUMBER, 38, b"zz"))
    assert recovered(torn, record(0x10, HERE) + record(0xB0, varint(14) + b"zz"))[38:40] == b"zz"


def read_folder(folder: Path) -> PreparedTransactions:
    def open_sibling(name: str) -> RangeReader | None:
        return reader((folder / name).read_bytes()) if (folder / name).exists() else None

    return read_prepared_transactions(open_sibling, (folder / "ib_logfile0").stat().st_size)


@pytest.mark.parametrize("server", ["mariadb-10.11", "mariadb-11.8"])
def test_damaged_files_of_an_engine_give_no_other_transactions(server: str, tmp_path: Path) -> None:
    folder = logs_of(server, "prepared", "intact", tmp_path / "log")
    assert read_folder(folder) == ((18, 19, 20), 0)
    rng = random.Random(33)
    for _ in range(10):
        name = rng.choice(("ib_logfile0", "ibdata1"))
        data = bytearray((folder / name).read_bytes())
        at = rng.randrange(20_000) if name == "ib_logfile0" else 5 * 16384 + rng.randrange(16384)
        data[at] ^= 1 << rng.randrange(8)
        changed = tmp_path / "changed"
        shutil.rmtree(changed, ignore_errors=True)
        shutil.copytree(folder, changed, ignore=lambda _, names, changed_name=name: [changed_name])
        (changed / name).write_bytes(data)
        with suppress(UnknownPageError):
            assert read_folder(changed) == ((18, 19, 20), 0)
