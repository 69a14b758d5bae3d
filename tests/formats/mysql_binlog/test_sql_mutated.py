"""Scripts by native code of logs that servers wrote and that were changed then: the same text and findings as by the
general writer, whatever the events say, with checksums and without."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlogtool.core import decode_batches
from binlogtool.format_api.row_output_interfaces import ScriptOptions
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body
from tests.formats.mysql_binlog.sql_made import COLUMNS, WORKLOADS, a_log, columns_map, script

MOST_BYTES = 40 << 10
LOGS = sorted(WORKLOADS.glob("*/*.gz"))


def events(data: bytes) -> Iterator[bytes]:
    """The events of a log behind its magic number."""
    at = 4
    while at + 19 <= len(data) and (size := struct.unpack_from("<I", data, at + 9)[0]) >= 19:
        yield data[at : at + size]
        at += size


def sealed(event: bytes) -> bytes:
    return event[:-4] + struct.pack("<I", zlib.crc32(event[:-4]))


def bare(event: bytes) -> bytes:
    """Without its checksum; FORMAT_DESCRIPTION has one always, and says that the others have none."""
    if event[4] == make.FORMAT_DESCRIPTION:
        return sealed(event[:-5] + b"\0" + event[-4:])
    return event[:9] + struct.pack("<I", len(event) - 4) + event[13:-4]


def mutated(whole: list[bytes], source: random.Random) -> list[bytes]:
    """Some events changed, most of them with a checksum that is right; some are there twice, or not at all."""
    made = list(whole)
    for _ in range(source.randrange(1, 12)):
        at = source.randrange(1, len(made))
        event, way = made[at], source.random()
        if way < 0.15:
            del made[at]
        elif way < 0.25:
            made.insert(at, event)
        elif len(event) > 24:
            place = source.choice((source.randrange(19, len(event) - 4), source.randrange(19, min(45, len(event) - 4))))
            value = source.choice((0, 1, 255, event[place] ^ 1 << source.randrange(8), source.randrange(256)))
            changed = event[:place] + bytes([value]) + event[place + 1 :]
            made[at] = changed if way > 0.95 else sealed(changed)
    return made


@pytest.mark.parametrize(
    "seed", [*range(20), 59, 208, 280, *(pytest.param(i, marks=pytest.mark.nightly) for i in range(300, 1500))]
)
def test_scripts_of_changed_logs_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = random.Random(seed)
    data = b""
    while not 0 < len(data) <= MOST_BYTES:
        data = gzip.decompress(source.choice(LOGS).read_bytes())
    made = mutated(list(events(data)), source)
    if source.random() < 0.4:
        made = list(map(bare, made))
    file = tmp_path / "log.000001"
    file.write_bytes(data[:4] + b"".join(made)[: source.choice((None, None, len(data) // 2))])
    wording = ScriptOptions(gtids=source.random() < 0.8, rows=source.choice(("exact", "statements")))
    expected, _ = script(file, wording)
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    by_kernels, _ = script(file, wording, "native")
    assert by_kernels == expected


@pytest.mark.parametrize("rows", ["exact", "statements"])
@pytest.mark.parametrize("seed", range(6))
def test_rows_without_checksums_are_the_same(
    seed: int, rows: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = random.Random(seed)
    file = tmp_path / "log.000001"
    data = a_log(source)
    file.write_bytes(data[:4] + b"".join(map(bare, events(data))))
    expected, _ = script(file, ScriptOptions(gtids=True, rows=rows))
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    made, quick = script(file, ScriptOptions(gtids=True, rows=rows), "native")
    assert made == expected
    assert quick > 24 * 3, "kernels wrote row events"


@pytest.mark.parametrize("checksums", [True, False])
def test_rows_of_tables_without_names_are_events_by_kernels(
    checksums: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With binlog_row_metadata=MINIMAL no statement can be made; each row event gets its map, and is closed."""
    source, made = random.Random(3), list[bytes]()
    columns = [COLUMNS[3], COLUMNS[18]]
    table = minimal(columns_map(columns, source))
    for number in range(1, 40):
        made += [make.event(make.GTID, make.mariadb_gtid(number)), make.event(make.TABLE_MAP, table)]
        for flags, rows in ((0, 400), (0, 1), (1, 2)):
            images = b"".join(image([column[3](source) for column in columns]) for _ in range(rows))
            body = bytearray(rows_body(2, images))
            body[6] = flags
            made.append(make.event(23, bytes(body)))
        made.append(make.event(make.XID, bytes(8)))
    data = make.log(made)
    file = tmp_path / "log.000001"
    file.write_bytes(data if checksums else data[:4] + b"".join(map(bare, events(data))))
    expected, _ = script(file, ScriptOptions(gtids=True, rows="statements"))
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    by_kernels, quick = script(file, ScriptOptions(gtids=True, rows="statements"), "native")
    assert by_kernels == expected
    assert expected.text.count(b"BINLOG '") == 1 + 39 * 3
    assert quick >= 38 * 5, "all but the first row event"


@pytest.mark.full
@pytest.mark.parametrize("checksums", [True, False])
def test_large_statements_are_the_same(checksums: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is larger than what is read at once, one that is cut off, one with another table in its middle, and one
    that takes two of BINLOG."""
    source, made = random.Random(4), list[bytes]()
    columns = [COLUMNS[3], COLUMNS[18]]
    table = minimal(columns_map(columns, source))
    other = b"\x09" + table[1:]
    images = b"".join(image([column[3](source) for column in columns]) for _ in range(900))
    going = make.event(23, rows_body(2, images)[:6] + b"\0" + rows_body(2, images)[7:])
    strange = b"\x09" + going[20:-4]
    for number, count in enumerate((330, 330, 330, 1100), 1):
        made += [make.event(make.GTID, make.mariadb_gtid(number)), make.event(make.TABLE_MAP, table), *[going] * count]
        if number == 3:
            made += [make.event(23, strange), make.event(make.TABLE_MAP, other), make.event(23, strange), going]
        made += [] if number == 2 else [make.event(23, rows_body(2, images))]
        made.append(make.event(make.XID, bytes(8)))
    data = make.log(made)
    file = tmp_path / "log.000001"
    file.write_bytes(data if checksums else data[:4] + b"".join(map(bare, events(data))))
    expected, _ = script(file, ScriptOptions(gtids=True))
    monkeypatch.setattr(decode_batches, "MIN_COMPILED_RUN", 0)
    by_kernels, quick = script(file, ScriptOptions(gtids=True), "native")
    assert by_kernels == expected
    assert len(expected.text) > 10 << 20
    assert quick > (1800 if checksums else 0)


def minimal(table: bytes) -> bytes:
    """A TABLE_MAP without what is optional in it: up to the bits of columns that can be NULL."""
    at = 8 + 1 + table[8] + 1
    at += 1 + table[at] + 1
    at += 1 + table[at]
    return table[: at + 1 + table[at] + 1]
