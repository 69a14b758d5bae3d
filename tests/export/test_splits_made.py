"""Big logs, made for the purpose, read in parts: what a part must be told of those before it, and what it costs."""

from __future__ import annotations

import random
import struct
from itertools import groupby
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.divide_file import FilePart, divide_file
from binlogtool.core.open_file import FileSource
from binlogtool.format_api.format import Hints
from binlogtool.limits import KIB
from tests.export.ibb_writer import COMMIT, IbbWriter, cint
from tests.export.parts import chained, one_by_one
from tests.export.reading import borders, facts
from tests.formats.mysql_binlog import crypt_writer as writer

GTID, QUERY, XID, DESCRIPTION, ROWS = 162, 2, 16, 15, 23
EVENT = Hints(level="event")
KEY = bytes(range(32))
SEALED_FROM = 296
QUERY_HEAD = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0"


# -- groups of an InnoDB binlog ----------------------------------------------------------------------------------------


def event(code: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 1_700_000_000, code, 1, 19 + len(body), 0, 0) + body


def group(number: int, id_size: int) -> list[bytes]:
    """A row event without its table map: how long its table id is only the FORMAT_DESCRIPTION tells."""
    rows = (77).to_bytes(id_size, "little") + struct.pack("<HBB", 1, 1, 1) + b"\0" + number.to_bytes(4, "little")
    gtid = struct.pack("<QIB6x", number, 0, 12)
    return [event(GTID, gtid), event(ROWS, rows), event(QUERY, QUERY_HEAD + b"x" * 900), event(XID, bytes(8))]


def description(id_size: int) -> bytes:
    lengths = bytearray(171)
    lengths[18] = 2 + id_size
    return event(DESCRIPTION, struct.pack("<H50sIB", 4, b"12.3.0-MariaDB", 0, 19) + lengths + b"\0" + bytes(4))


@pytest.fixture
def ibb(tmp_path: Path) -> Path:
    """Two files: a server with short table ids, restarted as one with long ones, and again the other way."""
    log = IbbWriter(tmp_path / "ibb", pages=24, interval=8)
    for number in range(1, 400):
        if number % 150 == 1:
            log.record(COMMIT, cint(0) + description(4 if number != 151 else 6))
        made = group(number, 6 if 150 < number <= 300 else 4)
        log.group((0, 1, number), made, 300 if number % 7 == 0 else None)
    return log.close()[0]


def test_events_of_groups_are_the_same_in_parts(ibb: Path) -> None:
    with binlogtool.open(ibb, hints=EVENT) as log:
        places = borders(log)
    with binlogtool.open(ibb, hints=EVENT) as log:
        whole = facts(log)
    assert len(places) > 15
    assert [len(text) > 0 for text, _ in groupby(place.carried for place in places)] == [True, True, True]
    assert one_by_one(ibb, chained(places), EVENT) == whole
    for place in places[::3]:
        assert one_by_one(ibb, chained([place]), EVENT) == whole, place


def test_a_damage_among_the_groups_is_told_in_parts_as_in_one_pass(ibb: Path) -> None:
    data = bytearray(ibb.read_bytes())
    data[18 * 16384 + 100] ^= 1
    ibb.write_bytes(data)
    with binlogtool.open(ibb, hints=EVENT) as log:
        places = borders(log)
    with binlogtool.open(ibb, hints=EVENT) as log:
        whole = facts(log)
    assert len(places) > 10 and "checksum-mismatch" in repr(whole)
    for place in places:
        assert one_by_one(ibb, chained([place]), EVENT) == whole, place


# -- encrypted binary logs ---------------------------------------------------------------------------------------------


def sealed_log(samples: Path, mode: str, count: int) -> bytes:
    """Transactions of server 2; the first one, and the third before the last, are those of server 9."""
    head = (samples / "mysql_binlog" / "encrypted" / "aes-ctr.000001").read_bytes()[:SEALED_FROM]
    made, at, chance = [head], SEALED_FROM, random.Random(7)
    for number in range(1, count + 1):
        server = 9 if number in (1, count - 2) else 2
        bodies = [
            (GTID, struct.pack("<QIB6x", number, 0, 12)),
            (QUERY, QUERY_HEAD + chance.randbytes(chance.randrange(40, 400)).hex().encode()),
            (XID, struct.pack("<Q", number)),
        ]
        for code, body in bodies:
            made.append(writer.event(at, code, body, server))
            at += len(made[-1])
    return writer.seal_log(b"".join(made), SEALED_FROM, KEY, head[280:292], mode)


@pytest.mark.parametrize("mode", ["cbc", "ctr"])
def test_the_parts_of_an_encrypted_log_are_read_without_those_before(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    path, hints = tmp_path / "log.000001", Hints(keyfile=b"1;" + KEY.hex().encode())
    path.write_bytes(sealed_log(samples, mode, 2500))
    with binlogtool.open(path, hints=hints) as log:
        cut = divide_file(log.make_scan(log.files[0]), 256 * KIB)
    whole = one_by_one(path, [FilePart()], hints)
    assert len(cut) > 4 and len(whole) > 7500
    assert one_by_one(path, cut, hints) == whole

    read, read_from = FileSource.read_at, list[int]()

    def noted(self: FileSource, offset: int, view: memoryview) -> int:
        read_from.append(offset)
        return read(self, offset, view)

    monkeypatch.setattr(FileSource, "read_at", noted)
    one_by_one(path, cut[-1:], hints)
    begin = cut[-1].start
    assert begin is not None and min(offset for offset in read_from if offset) > begin.offset - 512 * KIB > 256 * KIB


def test_servers_of_earlier_parts_are_known_behind_a_damage(samples: Path, tmp_path: Path) -> None:
    path, hints = tmp_path / "log.000001", Hints(keyfile=b"1;" + KEY.hex().encode())
    data = bytearray(sealed_log(samples, "cbc", 1500))
    path.write_bytes(data)
    with binlogtool.open(path, hints=hints) as log:
        offsets = [record.offset for record in log.records()]
        cut = divide_file(log.make_scan(log.files[0]), 256 * KIB)
    start, stop = offsets[-12], offsets[-9]  # the transaction before that of server 9
    data[start + 9 : start + 13] = b"\xff" * 4
    data[start + 20 : stop - 1] = bytes(stop - 1 - start - 20)
    path.write_bytes(data)
    assert cut[-1].start is not None and cut[-1].start.offset < start
    whole = one_by_one(path, [FilePart()], hints)
    assert f"next_provable={stop}" in repr(whole).replace("'next_provable': ", "next_provable=")
    assert one_by_one(path, cut, hints) == whole
