"""Events by compiled code and by the general writer must be the same bytes, whatever the events are."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.schema.backends import NativeBackend, PythonBackend
from tests.cli.invoke import invoke
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.native_logs import (
    BLOB,
    DATETIME2,
    DELETE_V1,
    DELETE_V2,
    LONG,
    NEWDECIMAL,
    SPACE,
    TINY,
    UPDATE_V1,
    UPDATE_V2,
    VARCHAR,
    WRITE_V1,
    WRITE_V2,
    dumped,
)
from tests.formats.mysql_binlog.row_building import image, lenenc, optional, rows_body, sized, table_map_body
from tests.report.native_lines import native, same

settings.register_profile(
    "native", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
examples = settings(settings.get_profile("native"), max_examples=100)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native") / "log.000001"


# -- real files --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_real_logs_are_written_the_same_and_most_events_by_compiled_code(corpus: Path) -> None:
    paths = sorted((corpus / "mysql-binlog").rglob("*.[0-9][0-9][0-9][0-9][0-9][0-9]"))
    assert len(paths) > 150
    count = others = 0
    for path in paths:
        try:
            done = same(path)
        except BinlogtoolError:
            continue
        count, others = count + done.native, others + done.others
    assert count > 4 * others


@pytest.mark.full
def test_damaged_logs_are_written_the_same(corpus: Path) -> None:
    count = 0
    for path in sorted((corpus / "mysql-binlog" / "generated" / "damaged").rglob("*.bin")):
        try:
            count += same(path).native
        except BinlogtoolError:
            continue
    assert count > 1000


@pytest.mark.full
def test_mutated_logs_are_written_the_same(corpus: Path, file: Path) -> None:
    """Without checksums, so that events with wrong bytes are decoded."""
    source = random.Random(4)
    for name in ("mariadb-11.8/row-full-types", "mysql-9.7/row-metadata-full", "mariadb-10.11/stmt"):
        path = sorted((corpus / "mysql-binlog" / "generated" / name).glob("*.000001"))[0]
        plain = without_checksums(path.read_bytes())
        for _ in range(25):
            data = bytearray(plain)
            for _ in range(source.randrange(1, 40)):
                place = source.randrange(4 + 260, len(data))
                data[place] = source.choice([0, 1, 127, 128, 255, data[place] ^ 1 << source.randrange(8)])
            file.write_bytes(data)
            same(file)


def without_checksums(log: bytes) -> bytes:
    """The same log as a server with binlog_checksum=NONE writes it."""
    parts, at = [make.MAGIC], 4
    while at < len(log):
        code, (size,) = log[at + 4], struct.unpack_from("<I", log, at + 9)
        body = log[at + 19 : at + size - 4]
        if code == make.FORMAT_DESCRIPTION:
            parts.append(make.event(code, body[:-1] + b"\0"))
        else:
            parts.append(make.event(code, body, checksum=False))
        at += size
    return b"".join(parts)


# -- rows --------------------------------------------------------------------------------------------------------------

KINDS: list[tuple[int, bytes, Callable[[random.Random], bytes]]] = [
    (LONG, b"", lambda source: source.randbytes(4)),
    (VARCHAR, b"\x50\x00", lambda source: sized(source.randbytes(source.randrange(9)))),
    (BLOB, b"\x02", lambda source: b"\x03\x00abc"),
    (NEWDECIMAL, b"\x04\x02", lambda source: bytes([0x80 + source.randrange(99), source.randrange(99)])),
    (DATETIME2, b"\x00", lambda source: b"\x99\xb5" + source.randbytes(3)),
    (6, b"", lambda source: b""),
    (245, b"\x04", lambda source: b"\x02\x00\x00\x00\x04\x01"),
]
columns = st.lists(st.sampled_from(range(len(KINDS))), min_size=1, max_size=20)


@examples
@given(
    st.data(), columns, st.sampled_from([WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2, UPDATE_V2, DELETE_V2]), st.booleans()
)
def test_rows_with_any_present_columns_and_nulls_are_written_the_same(
    file: Path, data: st.DataObject, chosen: list[int], code: int, named: bool
) -> None:
    source = random.Random(data.draw(st.integers(0, 1 << 30)))
    count = len(chosen)
    bitmaps = [[source.random() < 0.8 for _ in chosen] for _ in range(2 if code in (UPDATE_V1, UPDATE_V2) else 1)]
    images = b""
    for _ in range(source.randrange(4)):
        for bitmap in bitmaps:
            there = [kind for kind, present in zip(chosen, bitmap, strict=True) if present]
            images += image([None if source.random() < 0.2 else KINDS[kind][2](source) for kind in there])
    names = [data.draw(st.sampled_from([f"c{i}", f'"{i}', f"\u2028{i}", f"${i}"])) for i in range(count)]
    more = optional(4, b"".join(sized(name.encode()) for name in names)) if named else b""
    map_ = table_map_body(bytes(KINDS[k][0] for k in chosen), b"".join(KINDS[k][1] for k in chosen), more)
    body = rows_body(count, images, bitmaps, extra=b"" if code >= WRITE_V2 else None)
    dumped(file, make.event(make.TABLE_MAP, map_), make.event(code, body))


@pytest.mark.parametrize("count", [1, 8, 9, 250, 251, 300, 1024, 1025])
def test_tables_with_many_columns_are_written_the_same(file: Path, count: int) -> None:
    map_ = make.event(make.TABLE_MAP, table_map_body(bytes([TINY]) * count))
    rows = image([bytes([i & 255]) for i in range(count)]) + image([None] * count)
    done = dumped(
        file,
        map_,
        make.event(WRITE_V1, rows_body(count, rows, last=False)),
        make.event(DELETE_V1, rows_body(count, rows)),
    )
    assert done.native == (0 if count > 1024 else 3)


@examples
@given(st.binary(max_size=24), st.integers(0, 3), st.sampled_from([WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2]))
def test_images_that_do_not_fit_are_written_the_same_and_never_read_beyond_the_event(
    file: Path, images: bytes, cut: int, code: int
) -> None:
    map_ = table_map_body(bytes([LONG, VARCHAR, BLOB, NEWDECIMAL]), b"\x50\x00\x04\x09\x03")
    present = [[True] * 4] * (2 if code == UPDATE_V1 else 1)
    body = rows_body(4, images, present, extra=b"" if code >= WRITE_V2 else None)
    dumped(file, make.event(make.TABLE_MAP, map_), make.event(code, body[: len(body) - cut]))


@pytest.mark.parametrize("size", range(24))
def test_row_events_that_end_in_their_head_are_written_the_same(file: Path, size: int) -> None:
    map_ = make.event(make.TABLE_MAP, table_map_body(bytes([TINY]) * 20))
    for code in (WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2, UPDATE_V2, DELETE_V2):
        present = [[True] * 20] * (2 if code in (UPDATE_V1, UPDATE_V2) else 1)
        body = rows_body(20, b"", present, extra=b"" if code >= WRITE_V2 else None)
        dumped(file, map_, make.event(code, body[:size]))


def test_rows_without_map_or_with_other_columns_are_left_to_the_general_writer(file: Path) -> None:
    map_ = make.event(make.TABLE_MAP, table_map_body(bytes([TINY, TINY])))
    row = make.event(WRITE_V1, rows_body(2, image([b"\x01", b"\x02"])))
    other = make.event(WRITE_V1, rows_body(3, image([b"\x01", b"\x02", b"\x03"])))
    assert dumped(file, row, map_, other).native == 1


def test_a_map_replaces_the_one_before_it(file: Path) -> None:
    first = make.event(make.TABLE_MAP, table_map_body(bytes([TINY]), table=b"one"))
    second = make.event(make.TABLE_MAP, table_map_body(bytes([TINY]), table=b"two"))
    broken = make.event(make.TABLE_MAP, table_map_body(bytes([TINY]))[:-4])
    row = make.event(WRITE_V1, rows_body(1, image([b"\x01"]), last=False))
    done = dumped(file, first, row, second, row, first, row, broken, row, first, row, row)
    tables = [json.loads(line)["object"] for line in done.text.splitlines()]
    assert tables == [
        "db.one",
        "db.one",
        "db.two",
        "db.two",
        "db.one",
        "db.one",
        None,
        None,
        "db.one",
        "db.one",
        "db.one",
    ]
    assert done.native >= 8


def test_a_map_that_is_the_same_after_a_change_of_tables_is_the_map_of_its_rows(file: Path) -> None:
    """Python reads the DDL, which drops all maps, and the TABLE_MAP after it; compiled code goes on at the row."""
    table = make.event(make.TABLE_MAP, table_map_body(bytes([TINY])))
    row = make.event(WRITE_V1, rows_body(1, image([b"\x01"])))
    own, other = (
        make.event(make.QUERY, make.query(b"CREATE TABLE %s (a TINYINT)" % name)) for name in (b"t", b"other")
    )
    done = dumped(file, own, SPACE, table, row, other, table, row)
    lines = [json.loads(line) for line in done.text.splitlines()]
    assert [one["object"] for one in lines if one["type"] == "WRITE_ROWS_V1"] == ["db.t", "db.t"]


def maps_with_ids(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield make.event(make.TABLE_MAP, number.to_bytes(6, "little") + table_map_body(bytes([TINY]))[6:])
        yield make.event(WRITE_V1, number.to_bytes(6, "little") + rows_body(1, image([b"\x05"]))[6:])


@pytest.mark.full
def test_very_many_maps_are_left_to_the_general_writer(file: Path) -> None:
    """More than are kept from batch to batch."""
    few = dumped(file, *maps_with_ids(3000))
    assert few.native > 5000
    many = dumped(file, *maps_with_ids(36000))
    assert many.native < 70000
    assert many.native + many.others == 72000


def test_an_event_larger_than_the_buffer_is_written_all_the_same(file: Path) -> None:
    map_ = make.event(make.TABLE_MAP, table_map_body(bytes([BLOB]), b"\x04"))
    rows = [
        make.event(WRITE_V1, rows_body(1, image([struct.pack("<I", size) + b"y" * size]), last=False))
        for size in (9, 2 << 20, 9)
    ]
    done = dumped(file, map_, *rows)
    assert done.others >= 1  # whether a neighbour goes with it depends on where a batch ends
    assert done.native + done.others == 4


# -- transactions ------------------------------------------------------------------------------------------------------

statements = st.sampled_from(
    [
        b"BEGIN",
        b"begin",
        b"COMMIT",
        b"commit ",
        b"ROLLBACK",
        b"ROLLBACK TO `x`",
        b"SAVEPOINT `x`",
        b"XA START 'x'",
        b"XA END 'x'",
        b"XA COMMIT 'x'",
        b"RELEASE SAVEPOINT x",
        b"BEGINNING",
        b"insert into t values (1)",
        b"",
        b"B",
        b"\xff",
        b"START TRANSACTION",
        b"create table t (a int)",
        b"commit/**/",
        b"\x00",
    ]
)
statuses = st.one_of(
    st.just(b""),
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"\x00\x01\x00\x00\x00\x01" + bytes(8),
            b"\x06\x03std\x04\x21\x00\x21\x00\x08\x00",
            b"\x0c\x02a\x00b\x00",
            b"\x0c\xfe",
            b"\x03\x01\x00\x02\x00\x05\x06SYSTEM",
            b"\x80\x01\x02\x03\x81" + bytes(8),
            b"\x83\x01\x21\x00\x2d\x00",
            b"\x00" + bytes(4) + b"\x00" + bytes(4),
            b"\x0b\x01a\x01b",
            b"\x82\x00",
            b"\xff\xff",
            b"\x63abc",
            b"\x10\x01\x12\xff\x00",
        ]
    ),
)
numbers = st.one_of(st.integers(0, 2**64 - 1), st.integers(1, 40))
bodies = st.one_of(
    st.tuples(st.just(make.QUERY), st.builds(make.query, statements, statuses, st.sampled_from([b"", b"db", b"\xff"]))),
    st.tuples(st.just(make.XID), numbers.map(lambda n: n.to_bytes(8, "little"))),
    st.tuples(
        st.just(make.GTID),
        st.builds(
            make.mariadb_gtid,
            numbers,
            st.integers(0, 2),
            st.integers(0, 255),
            st.one_of(st.just(bytes(6)), st.binary(max_size=30)),
        ),
    ),
    st.tuples(
        st.just(make.GTID_LOG),
        st.builds(
            make.mysql_gtid,
            st.one_of(st.integers(1, 9), st.integers(-(2**63) + 1, 2**63 - 1)),
            st.sampled_from([make.UUID, bytes(16)]),
            st.one_of(st.just(b""), st.binary(max_size=40)),
        ),
    ),
    st.tuples(
        st.sampled_from([make.INTVAR, 13, 14, 29, 33, 34, 38, 42, 160, 162, 165, 3, 4, 26, 99]), st.binary(max_size=50)
    ),
    st.tuples(
        st.just(make.INTVAR), st.builds(lambda k, n: bytes([k]) + n.to_bytes(8, "little"), st.integers(0, 3), numbers)
    ),
    st.tuples(st.just(make.TABLE_MAP), st.just(table_map_body(bytes([TINY])))),
    st.tuples(st.just(WRITE_V1), st.just(rows_body(1, image([b"\x07"])))),
    st.tuples(
        st.just(WRITE_V1), st.just(rows_body(1, image([b"\x07"]))[:6] + b"\0\0" + rows_body(1, image([b"\x07"]))[8:])
    ),
)


@pytest.mark.full
@settings(settings.get_profile("native"), max_examples=250)
@given(
    st.lists(
        st.tuples(bodies, st.sampled_from([0, make.TIME, 2**32 - 1]), st.sampled_from([1, 2, 2**32 - 1])), max_size=60
    ),
    st.booleans(),
)
def test_any_events_in_any_order_are_written_the_same(
    file: Path, chosen: list[tuple[tuple[int, bytes], int, int]], checksum: bool
) -> None:
    """So their transactions and table maps are followed in the same way."""
    events = [make.event(code, body, checksum, time, server) for (code, body), time, server in chosen]
    dumped(file, *events, version=make.MARIADB if len(events) % 2 else make.MYSQL, checksum=checksum)


@examples
@given(st.integers(0, 2**63 - 1), st.lists(st.booleans(), min_size=5, max_size=5), st.integers(0, 2**55 - 1), numbers)
def test_gtids_of_mysql_8_are_written_the_same(
    file: Path, number: int, there: list[bool], time: int, size: int
) -> None:
    more = b""
    if there[0]:
        more += (time | (1 << 55) * there[1]).to_bytes(7, "little") + (time // 2).to_bytes(7, "little") * there[1]
        if there[2]:
            more += lenenc(size) + (80402 | (1 << 31) * there[3]).to_bytes(4, "little") + b"\x01\x39\x01\x00" * there[3]
            more += (size & 0xFF).to_bytes(8, "little") * there[4]
    done = dumped(file, make.event(make.GTID_LOG, make.mysql_gtid(number, more=more)), version=make.MYSQL)
    assert done.native == 1


def test_damage_makes_code_forget_maps_and_transactions(file: Path) -> None:
    group = [
        make.event(make.GTID, make.mariadb_gtid(5)),
        make.event(make.TABLE_MAP, table_map_body(bytes([TINY]))),
        make.event(WRITE_V1, rows_body(1, image([b"\x01"]), last=False)),
    ]
    bad = bytearray(make.event(make.XID, bytes(8)))
    bad[-1] ^= 1
    done = dumped(file, *group, group[2], bytes(bad), group[2], group[2])
    lines = [json.loads(line) for line in done.text.splitlines()]
    assert [line["txn"] for line in lines] == ["0-1-5", "0-1-5", "0-1-5", "0-1-5", None, None]
    assert [line["object"] for line in lines][-2:] == [None, None]


# -- selection and the command -----------------------------------------------------------------------------------------


def sample() -> Iterator[bytes]:
    for number in range(1, 400):
        yield make.event(make.GTID, make.mariadb_gtid(number, number % 3))
        yield make.event(make.TABLE_MAP, table_map_body(bytes([LONG]), table=b"t%d" % (number % 5)))
        yield make.event(WRITE_V1, rows_body(1, image([number.to_bytes(4, "little")])))
        yield make.event(make.XID, number.to_bytes(8, "little"))


@pytest.mark.parametrize(
    "chosen", [{}, {"skip": 4}, {"limit": 700}, {"skip": 20, "limit": 30}, {"start": "record:15", "limit": 1500}]
)
def test_selected_events_know_what_stood_before_them(file: Path, chosen: dict[str, Any]) -> None:
    file.write_bytes(make.log(sample()))
    done = same(file, Selection(**chosen))
    assert (done.native > 0) == ("start" not in chosen)


def test_events_scanned_without_compiled_code_are_written_by_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change of the schema alone."""
    file.write_bytes(make.log(sample()))
    whole = native(file)
    monkeypatch.setenv("BINLOGTOOL_BACKEND", "native")
    monkeypatch.setattr(NativeBackend, "make_scanner", PythonBackend.make_scanner)
    outputs = [invoke("dump", "-O", "jsonl", str(file)).out]
    monkeypatch.setenv("BINLOGTOOL_BACKEND", "python")
    outputs.append(invoke("dump", "-O", "jsonl", str(file)).out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == whole.native + whole.others


def test_the_command_writes_the_same_with_a_schema(file: Path, tmp_path: Path) -> None:
    """Also where the schema does not fit a table, which is said at each of its maps."""
    file.write_bytes(make.log(sample()))
    schema = tmp_path / "schema.sql"
    schema.write_text(
        "create table db.t1 (id int unsigned); create table db.t2 (a varchar(9)); create table db.t3 (a int, b int);"
    )
    outputs = [
        invoke("dump", "-O", "jsonl", "--schema", str(schema), str(file), environment={"BINLOGTOOL_BACKEND": backend})
        for backend in ("native", "python")
    ]
    assert outputs[0] == outputs[1]
    assert b'"id":' in outputs[0].out and b"meta-mismatch" in outputs[0].out
