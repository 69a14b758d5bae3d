"""Events of groups by compiled code: the lines are those of the general way, and each group is for itself."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlogtool.format_api.format import Hints
from binlogtool.schema.backends import get_native_backend
from tests.cli.invoke import invoke
from tests.export.ibb_writer import IbbWriter
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body, table_map_body
from tests.report.native_lines import same
from tests.sampling import EXHAUSTIVE

EVENT = Hints(level="event")
compiled = pytest.mark.skipif(get_native_backend() is None, reason="no native code for this machine")
LONG, WRITE_ROWS, PAGE = 3, 23, 16384


def gtid(number: int, server: int = 1) -> bytes:
    return make.event(make.GTID, make.mariadb_gtid(number), checksum=False, server=server)


def mapped(table: bytes, columns: int = 1) -> bytes:
    """A TABLE_MAP; all tables have the same id."""
    return make.event(make.TABLE_MAP, table_map_body(bytes([LONG] * columns), table=table), checksum=False)


def inserted(number: int, last: bool = True) -> bytes:
    return make.event(WRITE_ROWS, rows_body(1, image([number.to_bytes(4, "little")]), last=last), checksum=False)


def said(sql: bytes) -> bytes:
    return make.event(make.QUERY, make.query(sql), checksum=False)


XID = make.event(make.XID, (7).to_bytes(8, "little"), checksum=False)
DESCRIPTION = make.description(b"12.3.1-MariaDB-log")
PIECES = [
    gtid(5), gtid(6), gtid(7, server=2), gtid(1 << 63), mapped(b"t"), mapped(b"other"), mapped(b"t", 2), inserted(1),
    inserted(513, last=False), XID, said(b"BEGIN"), said(b"COMMIT"), said(b"CREATE TABLE t (a INT PRIMARY KEY)"),
    said(b"ALTER TABLE t CHANGE a b INT"), said(b"CREATE TABLE other (c INT)"), said(b"DROP TABLE t"), DESCRIPTION,
    mapped(b"t")[:-1], XID[:-1], b"rest", make.event(make.TABLE_MAP, bytes(9), checksum=False),
]  # fmt: skip
NAMES = {make.GTID: "GTID", make.TABLE_MAP: "TABLE_MAP", WRITE_ROWS: "WRITE_ROWS_V1", make.XID: "XID"}
USUAL = [gtid(9), mapped(b"t"), inserted(3, last=False), inserted(4), XID]
CONDITIONS = ("type = 'GTID' or record < 5", "object = 'db.t' and after.a > 2", "offset > 17000 and txn is null")

groups = st.lists(
    st.one_of(
        st.just((USUAL, None)), st.tuples(st.lists(st.sampled_from(PIECES), max_size=9), st.sampled_from([None, 40]))
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def logged(folder: Path, made: Sequence[tuple[Sequence[bytes], int | None]]) -> Path:
    """A log of one file with these groups; of each what is out of band comes in pieces of so many bytes."""
    writer = IbbWriter(folder / "log", pages=40)
    for events, piece in made:
        writer.group((0, 1, 1), events or [b""], piece if len(events) > 1 else None)
    return writer.close()[0]


@pytest.mark.full
@compiled
@settings(max_examples=60 if EXHAUSTIVE else 25, deadline=None)
@given(groups)
def test_lines_of_any_groups_are_those_of_the_general_way(made: list[tuple[list[bytes], int | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = logged(Path(folder), made)
        same(path, hints=EVENT)
        for condition in (None, *CONDITIONS):
            options = ["--level", "event", "-O", "jsonl", *([] if condition is None else ["--where", condition])]
            one, other = (invoke("dump", *options, "--backend", name, str(path)) for name in ("native", "python"))
            assert one == other


@compiled
def test_compiled_code_writes_all_events_but_those_that_teach_something(tmp_path: Path) -> None:
    made = [([said(b"CREATE TABLE t (a INT)")], None), *[(USUAL, None)] * 2000, ([DESCRIPTION], None), (USUAL, None)]
    done = same(logged(tmp_path, made), hints=EVENT)
    assert done.native + done.others == 5 * 2001 + 2 and done.others < 20


def told(path: Path, backend: str) -> list[tuple[object, ...]]:
    done = invoke("dump", "--level", "event", "-O", "jsonl", "--backend", backend, str(path))
    lines = [json.loads(line) for line in done.out.splitlines()]
    members = ("record", "type", "txn", "object")
    return [(*(line[name] for name in members), line["inner"]["offset"], line["inner"]["size"]) for line in lines]


@pytest.mark.parametrize("backend", ["native", "python"])
def test_a_group_has_the_transaction_of_its_first_event_and_its_own_tables(backend: str, tmp_path: Path) -> None:
    if backend == "native" and get_native_backend() is None:
        pytest.skip("no native code for this machine")
    first = [gtid(5), mapped(b"t"), inserted(1), XID]
    second = [gtid(6), inserted(2), mapped(b"other"), inserted(3), gtid(7, server=2), XID]
    third = [mapped(b"t"), gtid(8), inserted(4)]
    expected: list[tuple[object, ...]] = []
    for events, txn, objects in (
        (first, "0-1-5", [None, "db.t", "db.t", None]),
        (second, "0-1-6", [None, None, "db.other", "db.other", None, None]),
        (third, None, ["db.t", None, "db.t"]),
    ):
        at = 0
        for event, name in zip(events, objects, strict=True):
            expected.append((NAMES[event[4]], txn, name, at, len(event)))
            at += len(event)
    made = [(first, None), (second, None), (third, None)]
    found = told(logged(tmp_path, made), backend)
    assert [one[1:] for one in found] == expected
    assert [one[0] for one in found] == [1] * 4 + [2] * 6 + [3] * 3  # behind the GTID_STATE
    (tmp_path / "again").mkdir()
    again = told(logged(tmp_path / "again", made * 40), backend)
    assert [one[1:] for one in again] == expected * 40


def test_events_of_real_logs_are_written_the_same_and_most_by_compiled_code(corpus: Path) -> None:
    native = others = 0
    for path in sorted((corpus / "mariadb-innodb-binlog" / "generated").glob("*/*-00000?.ibb")):
        done = same(path, hints=EVENT)
        native, others = native + done.native, others + done.others
    assert native > 10 * others > 0


@pytest.mark.full
@compiled
def test_more_events_than_a_batch_has_room_for_are_told_once(tmp_path: Path) -> None:
    large = [gtid(5), *[XID, inserted(1)] * 10_000]
    made = [USUAL, large, *[USUAL] * 4, large[:9000], large[:9000], USUAL]
    writer = IbbWriter(tmp_path / "log", pages=200)
    for events in made:
        writer.group((0, 1, 1), events)
    done = same(writer.close()[0], hints=EVENT)
    assert done.native + done.others == sum(map(len, made))


@compiled
def test_what_unproven_events_teach_is_not_known_to_compiled_code(tmp_path: Path) -> None:
    created = [gtid(9), said(b"CREATE TABLE t (a INT PRIMARY KEY)")]
    path = logged(tmp_path, [*[(USUAL, None)] * 150, (created, None), *[(USUAL, None)] * 150])
    data = bytearray(path.read_bytes())
    data[data.index(b"CREATE TABLE") // PAGE * PAGE + PAGE - 1] ^= 1
    path.write_bytes(data)
    options = ["--level", "event", "-O", "jsonl", "--on-damage", "salvage", "--where", "type ~ 'WRITE*' or seq > 90"]
    one, other = (invoke("dump", *options, "--backend", name, str(path)) for name in ("native", "python"))
    assert one == other
    images = [json.loads(line)["body"]["rows"][0]["after"] for line in one.out.splitlines()]
    assert len(images) == 600 and images[0] == {"@1": 3} and {"a": 3} in images and images[-1] == {"@1": 4}
