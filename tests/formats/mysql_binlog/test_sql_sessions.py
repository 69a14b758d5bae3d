"""Transactions of many sessions by kernels: the same script as by the general writer, whoever begins them, and when."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from binlogtool.format_api.row_output_interfaces import ScriptOptions
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body
from tests.formats.mysql_binlog.sql_made import COLUMNS, columns_map, script

ANONYMOUS, VERSION = 34, struct.pack("<I", 90704)


def status(source: random.Random) -> bytes:
    """A block of status variables: mostly one of a few clients, sometimes with what kernels leave to the others."""
    made = b"\0" + struct.pack("<I", source.choice((0, 0, 1 << 26)))
    made += b"\1" + struct.pack("<Q", source.choice((0, 1168113696)))
    if source.random() < 0.95:
        charset = source.choice((255, 255, 255, 45, 8, 28 if source.random() < 0.1 else 33))
        made += b"\4" + struct.pack("<HHH", charset, charset, 255)
    made += source.choice((b"", b"\5\6SYSTEM", b"\5\6+02:00"))
    if source.random() < 0.5:
        part = source.choice((0, 7, 999_999, source.randrange(1_000_000), 1_000_000))
        made += b"\x0d" + part.to_bytes(3, "little")
    made += source.choice((b"", b"\x12\xff\x00"))
    return made + (b"\x63\1" if source.random() < 0.02 else b"")


def gtid(number: int, source: random.Random) -> bytes:
    """The body of a GTID event of 9.7, with one time of its commit or two, and sometimes of an older origin."""
    body = bytearray(make.mysql_gtid(number))
    body[0] = source.randrange(2)
    time, before = 1_795_232_544_000_000 + number, 1_795_232_543_000_000 + source.randrange(2)
    times = time.to_bytes(7, "little")
    if source.random() < 0.3:
        times = (time | 1 << 55).to_bytes(7, "little") + before.to_bytes(7, "little")
    old = struct.pack("<II", 90704 | 1 << 31, 80400)
    return bytes(body) + times + b"\xfc\x10\x20" + (old if source.random() < 0.05 else VERSION)


def a_log(source: random.Random) -> bytes:
    """Transactions with a row event or two, of several clients."""
    clients = [(source.randrange(1, 99), status(source)) for _ in range(4)]
    events, columns = [], [COLUMNS[3], COLUMNS[18]]
    table = make.event(make.TABLE_MAP, columns_map(columns, random.Random(1)))
    anonymous = source.random() < 0.3
    for number in range(1, 60):
        code = ANONYMOUS if anonymous or source.random() < 0.05 else make.GTID_LOG
        thread, block = source.choice(clients) if source.random() < 0.8 else (source.randrange(99), status(source))
        begin = bytearray(make.query(source.choice((b"BEGIN",) * 9 + (b"begin",)), block, source.choice((b"db", b"e"))))
        begin[:4] = struct.pack("<I", thread)
        time = source.choice((0, 1_795_232_544, 1_795_232_544 + number))
        events += [make.event(code, gtid(number, source)), make.event(make.QUERY, bytes(begin), time=time)]
        for _ in range(source.randrange(1, 3)):
            values = b"".join(image([column[3](source) for column in columns]) for _ in range(2))
            body = bytearray(rows_body(2, values, [[True, True]], b""))
            body[6] = source.choice((1, 1, 1, 3, 5))
            events += [table, make.event(30, bytes(body), time=source.choice((time, time + 1)))]
        events.append(make.event(make.XID, bytes(8)))
    return make.log(events, version=make.MYSQL.replace(b"8.0", b"9.7"))


@pytest.mark.full
@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("seed", range(16))
def test_transactions_of_many_sessions_are_the_same(seed: int, rows: str, kernels: Any, tmp_path: Path) -> None:
    file = tmp_path / "log.000001"
    file.write_bytes(a_log(random.Random(seed)))
    wording = ScriptOptions(gtids=seed % 3 > 0, rows=rows)
    expected, _ = script(file, wording)
    kernels()
    made, quick = script(file, wording)
    assert made == expected
    assert made.text.count(b"BEGIN\n") >= 40
    assert quick > 20, "kernels wrote transactions"


@pytest.mark.parametrize("rows", ["exact", "statements"])
def test_what_few_clients_do_is_written_by_kernels(rows: str, kernels: Any, tmp_path: Path) -> None:
    """Their threads, default databases and microseconds change with each transaction."""
    events = list[bytes]()
    columns = [COLUMNS[3], COLUMNS[18]]
    table = make.event(make.TABLE_MAP, columns_map(columns, random.Random(1)))
    source = random.Random(5)
    for number in range(1, 101):
        block = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\4" + struct.pack("<HHH", 255 if number % 2 else 45, 255, 255)
        begin = make.query(b"BEGIN", block + b"\x0d" + (number * 9999).to_bytes(3, "little"), b"d%d" % number)
        begin = struct.pack("<I", number % 7) + begin[4:]
        values = image([column[3](source) for column in columns[:1]] + [b"\1a"])
        rows_ = bytearray(rows_body(2, values, [[True, True]], b""))
        rows_[6] = 1
        body = make.mysql_gtid(number) + number.to_bytes(7, "little") + b"\x64" + VERSION
        events += [make.event(make.GTID_LOG, body), make.event(make.QUERY, begin), table]
        events += [make.event(30, bytes(rows_)), make.event(make.XID, bytes(8))]
    file = tmp_path / "log.000001"
    file.write_bytes(make.log(events, version=make.MYSQL))
    expected, _ = script(file, ScriptOptions(gtids=True, rows=rows))
    kernels()
    made, quick = script(file, ScriptOptions(gtids=True, rows=rows))
    assert made == expected
    assert quick >= 480, "all but the first transactions"
