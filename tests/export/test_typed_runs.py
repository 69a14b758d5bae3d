"""Rows of many small events: compiled code takes them by the batch, and says what one by one says."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool import convert
from binlogtool.core.record_and_selection_types import RowBatch, Selection
from binlogtool.export.typed_columns import TableLayout, TypedColumn, build_table_batch
from tests.cli.invoke import invoke
from tests.export.typed_logs import tables, without_checksums
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, sized, table_map_body
from tests.sampling import EXHAUSTIVE

WRITE, UPDATE, DELETE = 23, 24, 25
LONG, VARCHAR, DATE = b"\x03", b"\x0f", b"\x0a"
DAY, NO_DAY = ((2026 << 9) | (11 << 5) | 25).to_bytes(3, "little"), bytes(3)
BATCH = 1 << 20
"""Bytes that are read at once."""
SKIP = Selection(on_damage="skip")
BACKENDS = ("native", "python")
IMMEDIATE, ORIGINAL, EPOCH = 1_700_000_000_000_000, 1_600_000_000_000_000, datetime(1970, 1, 1, tzinfo=UTC)


def of_table(number: int, body: bytes) -> bytes:
    """A body with the id of a table."""
    return number.to_bytes(6, "little") + body[6:]


def map_of(number: int) -> bytes:
    names = {"database": b"db", "table": f"t{number}".encode()}
    return make.event(make.TABLE_MAP, of_table(number, table_map_body(LONG + VARCHAR + DATE, b"\x40\x00", **names)))


def row(number: int, text: bytes = b"text", day: bytes = DAY) -> bytes:
    return image([number.to_bytes(4, "little"), sized(text), day])


def change(table: int, kind: int, *rows: bytes) -> bytes:
    present = [[True] * 3] * (2 if kind == UPDATE else 1)
    return make.event(kind, of_table(table, rows_body(3, b"".join(rows), present)))


def transaction(number: int, *events: bytes, standalone: bool = False) -> Iterator[bytes]:
    yield make.event(make.GTID, make.mariadb_gtid(number, flags=1 if standalone else 12))
    yield from events
    if not standalone:
        yield make.event(make.XID, number.to_bytes(8, "little"))


def small_ones(count: int, special: Callable[[int], bytes] = lambda _: b"") -> Iterator[bytes]:
    """Transactions over two tables, of all three kinds. special: a statement that stands in front of the end."""
    for n in range(1, count + 1):
        first, second = map_of(7), map_of(8)
        events = [first, change(7, WRITE, row(n), row(-n & 0xFFFF, b"x" * (n % 50)))]
        if n % 3 == 0:
            events += [second, change(8, UPDATE, row(n), row(n, b"new"))]
        if n % 5 == 0:
            events += [second, change(8, DELETE, row(n, day=DAY)), first, change(7, WRITE, row(n, b""))]
        more = special(n)
        yield from transaction(n, *events, *([more] if more else []))


def both(log: Path, folder: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, by compiled code and one by one, which must be the same."""
    folder.mkdir(exist_ok=True)
    options = {"selection": SKIP, **options}
    found = [tables(log, folder / one, backend=one, image="both", **options) for one in BACKENDS]
    (by_code, first), (in_python, second) = found
    assert by_code == in_python and first.finding_counts == second.finding_counts
    general = {"general_rows": None}  # only of compiled code
    assert first.details | general == second.details | general
    return by_code


def crowds(log: Path, selection: Selection = SKIP) -> tuple[int, int]:
    """How many row events come at once, and in how many crowds."""
    with binlogtool.open(log, backend="native") as opened:
        found = [one for one in opened.row_batches(selection) if isinstance(one, RowBatch)]
    return sum(len(one.rows.record_indexes) for one in found), len(found)


@pytest.mark.full
def test_rows_of_small_transactions_are_those_that_go_one_by_one(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(small_ones(4000)))
    count = 4000 + 4000 // 3 + 2 * (4000 // 5)
    assert log.stat().st_size > BATCH and crowds(log)[0] == count
    found = both(log, tmp_path)
    made = [one for table in found.values() for one in table]
    assert len(made) == count + 4000
    ends = {one["txn"]: (one["record"], one["row"]) for one in made if one["commit"]}
    last = {one["txn"]: (one["record"], one["row"]) for one in sorted(made, key=lambda r: (r["record"], r["row"]))}
    assert ends == last and len(ends) == 4000


def test_values_that_only_python_decodes_do_not_stop_compiled_code(tmp_path: Path) -> None:
    """A date without a day is in `unfit`; what is before and after it, in this table and others, is whole."""

    def without_a_day(n: int) -> bytes:
        return map_of(7) + change(7, WRITE, row(n), row(n, day=NO_DAY)) if n % 97 == 0 else b""

    log = tmp_path / "log.000001"
    log.write_bytes(make.log(small_ones(1000, without_a_day)))
    found = both(log, tmp_path)
    unfit = [one for one in found["db.t7"] if one["unfit"] is not None]
    assert [one["unfit"] for one in unfit] == ['{"after.@3":"0000-00-00"}'] * 10
    assert [one["after"]["@1"] for one in unfit] == [97 * n for n in range(1, 11)]
    assert crowds(log)[0] == 1000 + 1000 // 3 + 2 * (1000 // 5) + 10


@pytest.mark.parametrize(
    ("special", "finding"),
    [
        (lambda n: make.event(WRITE, of_table(99, rows_body(3, row(n)))) if n % 50 == 0 else b"", "dangling-reference"),
        (lambda n: map_of(7) + change(7, WRITE, row(n)[:-2]) if n % 50 == 0 else b"", "payload-undecodable"),
        (lambda n: make.event(make.QUERY, b"\x01" * 20) if n % 50 == 0 else b"", "length-out-of-bounds"),
    ],
    ids=["no map", "cut image", "broken statement"],
)
def test_records_that_cannot_be_decoded_are_rows_of_their_own(
    tmp_path: Path, special: Callable[[int], bytes], finding: str
) -> None:
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(small_ones(200, special)))
    found = both(log, tmp_path)
    told = [one for table in found.values() for one in table if one["findings"]]
    assert len(told) == 4 and all(finding in one["findings"] for one in told)


def test_what_statements_say_of_a_table_holds_from_there_on(tmp_path: Path) -> None:
    def alter(n: int) -> Iterator[bytes]:
        made = b"CREATE TABLE t7 (id int primary key, name varchar(60), day date)"
        text = made if n == 1 else b"ALTER TABLE t7 COMMENT 'x'"
        yield from transaction(n, make.event(make.QUERY, make.query(text)), standalone=True)

    log = tmp_path / "log.000001"
    log.write_bytes(make.log([*small_ones(300), *alter(1), *small_ones(300), *alter(2), *small_ones(300)]))
    found = both(log, tmp_path)
    told = [{name for name, value in one["after"].items() if value is not None} for one in found["db.t7"]]
    assert {"@1", "@2", "@3"} in told and {"id", "name", "day"} in told


def test_images_that_are_not_full_say_what_is_absent(tmp_path: Path) -> None:
    def part(n: int) -> bytes:
        present = [[True, False, False], [False, True, n % 2 == 0]]
        key = image([n.to_bytes(4, "little")])
        new = image([sized(b"new"), DAY] if n % 2 == 0 else [sized(b"new")])
        return map_of(7) + make.event(UPDATE, of_table(7, rows_body(3, key + new, present)))

    log = tmp_path / "log.000001"
    log.write_bytes(make.log(small_ones(300, part)))
    assert crowds(log)[0] == 300 * 2 + 100 + 120
    absent = [one["absent"] for one in both(log, tmp_path)["db.t7"] if one["absent"]]
    assert absent[0] == ["before.@2", "before.@3", "after.@1", "after.@3"]
    assert absent[1] == ["before.@2", "before.@3", "after.@1"] and len(absent) == 300


def test_rows_of_one_table_are_the_same_beside_others(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(small_ones(500)))
    wanted = Selection(on_damage="skip", objects=("db.t8",))
    found = [convert([log], "parquet", tmp_path / one, backend=one, selection=wanted) for one in BACKENDS]
    assert found[0].rows == found[1].rows == 500 // 3 + 500 // 5


def test_the_end_of_another_transaction_is_not_that_of_one_whose_end_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    first = [*transaction(1, map_of(7), change(7, WRITE, row(1)))]
    data = bytearray(make.log([*first, *transaction(2), *small_ones(3)]))
    data[len(make.log(first)) - 6] ^= 1  # in the XID of the first one
    log.write_bytes(data)
    found = both(log, tmp_path)["db.t7"]
    assert next(one["commit"] for one in found if one["txn"] == "0-1-1") is False
    with binlogtool.open(log) as opened:
        assert next(one["commit"] for one in opened.rows("db.t7") if one["txn"] == "0-1-1") is False


BROKEN = [map_of(7), change(7, WRITE, row(1, b"broken off"))]
BEGIN = make.event(make.QUERY, make.query(b"BEGIN"))


@pytest.mark.parametrize("before", [0, 300])
@pytest.mark.parametrize(
    "events",
    [
        [make.event(make.GTID, make.mariadb_gtid(999)), *BROKEN, *transaction(1000)],
        [BEGIN, *BROKEN, BEGIN, make.event(make.XID, bytes(8))],
        [*BROKEN, *transaction(1000)],
    ],
    ids=["GTID", "BEGIN", "outside"],
)
def test_the_end_of_another_transaction_is_not_that_of_one_that_has_none(
    events: list[bytes], before: int, tmp_path: Path
) -> None:
    """Nothing is damaged: the one broke off, and the one behind it has no rows of this table."""
    log = tmp_path / "log.000001"
    log.write_bytes(make.log([*small_ones(before), *events, *small_ones(3)]))
    made = both(log, tmp_path)["db.t7"]
    (broken,) = [one for one in made if one["after"] is not None and one["after"]["@2"] == "broken off"]
    assert broken["commit"] is False and sum(one["commit"] for one in made) > 1
    with binlogtool.open(log) as opened:
        assert [one["commit"] for one in opened.rows("db.t7") if one["@2"] == "broken off"] == [False]


@pytest.mark.full
def test_flipped_bits_that_no_checksum_proves_are_told_alike(tmp_path: Path) -> None:
    log, chosen = tmp_path / "log.000001", random.Random(11)
    data, _ = without_checksums(make.log(small_ones(200)))
    for number in range(12):
        made = bytearray(data)
        for _ in range(12):
            made[chosen.randrange(400, len(made))] ^= 1 << chosen.randrange(8)
        log.write_bytes(made)
        both(log, tmp_path / str(number))


def test_a_log_that_is_cut_anywhere_gives_the_same_rows(tmp_path: Path) -> None:
    log, chosen = tmp_path / "log.000001", random.Random(5)
    data = make.log(small_ones(120))
    for number in range(10):
        log.write_bytes(data[: chosen.randrange(300, len(data))])
        both(log, tmp_path / str(number))


def test_mysql_says_when_each_transaction_was_committed(tmp_path: Path) -> None:
    def all_events() -> Iterator[bytes]:
        for n in range(1, 400):
            immediate, original = IMMEDIATE + n, (ORIGINAL + n).to_bytes(7, "little") if n % 2 else b""
            more = (immediate | (n % 2) << 55).to_bytes(7, "little") + original
            more += b"\xfc\x10\x27" + (80_400).to_bytes(4, "little") if n % 3 else b""
            yield make.event(make.GTID_LOG, make.mysql_gtid(n, more=more))
            yield make.event(make.QUERY, make.query(b"BEGIN"))
            yield from (map_of(7), change(7, WRITE, row(n)), make.event(make.XID, bytes(8)))

    log = tmp_path / "log.000001"
    log.write_bytes(make.log(all_events(), version=make.MYSQL))
    found = both(log, tmp_path)["db.t7"]
    times = [(one["time"] - EPOCH) // timedelta(microseconds=1) for one in found]
    assert times == [(ORIGINAL if n % 2 else IMMEDIATE) + n for n in range(1, 400)]
    assert crowds(log)[0] == 399


# --- Nothing gives up: selections, conditions, many tables, values of unknown character sets, compressed events ---


def one_row_each(count: int, *, number_of: Callable[[int], int] = lambda n: 7) -> Iterator[bytes]:
    """Transactions 0-1-1 to 0-1-count of one row each, a second apart, by the servers 1 and 2 in turn."""
    for n in range(1, count + 1):
        body = rows_body(3, row(n))
        for code, data in (
            (make.GTID, make.mariadb_gtid(n, flags=12)),
            (make.TABLE_MAP, b""),
            (WRITE, of_table(number_of(n), body)),
            (make.XID, n.to_bytes(8, "little")),
        ):
            if code == make.TABLE_MAP:
                yield map_of(number_of(n))
            else:
                yield make.event(code, data, time=START + n)


START = 1_700_000_000


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(start_time=(START + 100) * 1_000_000), range(100, 401)),
        (Selection(stop_time=(START + 100) * 1_000_000), range(1, 100)),
        (Selection(start="gtid:0-1-150"), range(151, 401)),
        (Selection(stop="gtid:0-1-150"), range(1, 151)),
        (Selection(exclude_gtids="0-1-400"), range(1, 400)),
        (Selection(types=("WRITE_ROWS_V1",)), range(1, 401)),
        (Selection(types=("XID",)), ()),
        (Selection(start="record:801"), range(201, 401)),
        (Selection(stop="record:801"), range(1, 201)),
        (Selection(origins=(1,), start="record:401", stop="record:801"), range(101, 201)),
    ],
    ids=str,
)
def test_a_selection_is_a_mask_for_compiled_code(selection: Selection, wanted: range, tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(one_row_each(400)))
    found = both(log, tmp_path, selection=selection)
    assert [one["after"]["@1"] for one in found.get("db.t7", ())] == list(wanted)
    assert crowds(log, selection)[0] == len(wanted)


def test_a_selection_of_types_leaves_out_the_ends_of_transactions(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(one_row_each(10)))
    assert all(one["commit"] for one in both(log, tmp_path)["db.t7"])
    only_rows = Selection(types=("WRITE_ROWS_V1",))
    assert not any(one["commit"] for one in both(log, tmp_path / "2", selection=only_rows)["db.t7"])


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"where": "after.`@1` > 290 and after.`@2` != 'x'"}, [*range(291, 301)]),
        ({"where": "after.`@1` >= 10 and after.`@1` < 13"}, [10, 11, 12]),
        ({"where": "txn = '0-1-5'"}, [5, -5]),
        ({"where": "object = 'db.t7' and after.`@1` < -298"}, [-299, -300]),
        ({"skip": 3, "limit": 4}, [-2, 3, -3, 4]),
        ({"limit": 5}, [1, -1, 2, -2, 3]),
    ],
    ids=str,
)
def test_conditions_and_counts_select_single_rows(options: dict[str, Any], wanted: list[int], tmp_path: Path) -> None:
    """Each event has two rows, n and -n; the last selected one of a transaction is its end."""

    def events() -> Iterator[bytes]:
        for n in range(1, 301):
            yield from transaction(n, map_of(7), change(7, WRITE, row(n), row(-n & 0xFFFFFFFF)))

    log = tmp_path / "log.000001"
    log.write_bytes(make.log(events()))
    found = both(log, tmp_path, selection=Selection(on_damage="skip", **options))["db.t7"]
    assert [one["after"]["@1"] for one in found] == wanted
    last = {one["txn"]: one["after"]["@1"] for one in found}
    assert {one["txn"]: one["after"]["@1"] for one in found if one["commit"]} == last
    assert crowds(log)[0] == 300


TABLES = 1000 if EXHAUSTIVE else 250


@pytest.mark.full
def test_hundreds_of_tables_are_read_by_compiled_code(tmp_path: Path) -> None:
    """The rows of a table are spread over the whole log: row n is in table n % TABLES."""
    log = tmp_path / "log.000001"
    log.write_bytes(make.log(one_row_each(20_000, number_of=lambda n: 1000 + n % TABLES)))
    assert log.stat().st_size > 3 * BATCH and crowds(log)[0] == 20_000
    found, done = tables(log, tmp_path / "out", image="both", selection=SKIP)
    assert len(found) == TABLES and "general_rows" not in done.details
    for n in range(TABLES):
        own = [one["after"]["@1"] for one in found[f"db.t{1000 + n}"]]
        assert own == [k for k in range(1, 20_001) if k % TABLES == n]


def test_texts_that_are_not_utf8_are_unfit_and_stop_nothing(tmp_path: Path) -> None:
    """BINARY without its definition looks like text: the log has neither its name nor its character set."""

    def events() -> Iterator[bytes]:
        for n in range(1, 501):
            text = b"\xff\xfe" + bytes([n % 256]) if n % 2 else b"text"
            yield from transaction(n, map_of(7), change(7, WRITE, row(n, text)))

    log = tmp_path / "log.000001"
    log.write_bytes(make.log(events()))
    found = both(log, tmp_path)["db.t7"]
    assert [one["after"]["@2"] for one in found] == [None if n % 2 else "text" for n in range(1, 501)]
    assert found[0]["unfit"] == '{"after.@2":{"$bytes":"fffe01"}}'
    assert [one["unfit"] is None for one in found] == [n % 2 == 0 for n in range(1, 501)]
    assert crowds(log)[0] == 500


def test_compressed_events_are_unpacked_for_compiled_code(tmp_path: Path) -> None:
    """MariaDB's WRITE_ROWS_COMPRESSED_V1 between uncompressed events of the same table."""

    def packed(n: int) -> bytes:
        images, head = row(n, b"packed" * 20) + row(n + 1000), rows_body(3, b"")
        block = b"\x82" + struct.pack(">H", len(images)) + zlib.compress(images)
        return make.event(166, of_table(7, head + block))

    def events() -> Iterator[bytes]:
        for n in range(1, 301):
            yield from transaction(n, map_of(7), packed(n), map_of(7), change(7, WRITE, row(n + 2000)))

    log = tmp_path / "log.000001"
    log.write_bytes(make.log(events()))
    found = both(log, tmp_path)["db.t7"]
    assert [one["after"]["@1"] for one in found] == [k for n in range(1, 301) for k in (n, n + 1000, n + 2000)]
    assert found[3]["after"]["@2"] == "packed" * 20 and [one["row"] for one in found[:3]] == [0, 1, 0]
    assert crowds(log)[0] == 600


def test_rows_that_are_decoded_one_record_at_a_time_are_counted_with_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log.000001"
    wide = table_map_body(LONG * 300, b"", database=b"db", table=b"wide")
    event = make.event(WRITE, of_table(9, rows_body(300, image([n.to_bytes(4, "little") for n in range(300)]))))
    wide_map = make.event(make.TABLE_MAP, of_table(9, wide))
    log.write_bytes(make.log([*small_ones(50), *transaction(51, wide_map, event)]))
    _, done = tables(log, tmp_path / "out", backend="native", selection=SKIP)
    (reason,) = done.details["general_rows"]
    assert done.details["general_rows"][reason] == 1 and "256 columns" in reason
    said = invoke("-v", "convert", "--to", "parquet", "--per-table", "-o", str(tmp_path / "2"), str(log))
    assert f"1 row was decoded one record at a time, more slowly: {reason}" in said.err


def test_whole_numbers_that_fit_a_narrower_column_stay_in_it() -> None:
    """A stream keeps the types that it began with."""
    wide = (TypedColumn("u", "decimal(20,0)"), TypedColumn("t", "string"))
    numbers = (1, 2**63, None, 2**63 - 1)
    images: list[dict[str, Any]] = [{"u": None if n is None else Decimal(n), "t": "a"} for n in numbers]
    batch = build_table_batch(wide, [{"op": "INSERT", "before": None, "after": image} for image in images])
    narrow = TableLayout((TypedColumn("u", "bigint"), TypedColumn("t", "int")), (), "both", operations=True)
    table = narrow.to_table(batch).to_pylist()
    assert [row["after"] for row in table] == [{"u": n, "t": None} for n in (1, None, None, 2**63 - 1)]
    assert [json.loads(row["unfit"]) for row in table] == [
        {"after.t": "a"}, {"after.u": "9223372036854775808", "after.t": "a"}, {"after.t": "a"}, {"after.t": "a"},
    ]  # fmt: skip
