"""Rows by compiled code and rows by the general way must be the same, whatever the records are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import binlogtool
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.core.record_filter import RecordRange
from binlogtool.errors import BinlogtoolError
from binlogtool.export import records_to_arrow
from tests.export.native_rows import same
from tests.formats.tarantool import make
from tests.report.native_lines import hostile, raw_row
from tests.report.native_lines import rows as any_rows
from tests.sampling import EXHAUSTIVE, take_sample


def by_compiled_code(path: Path) -> tuple[int, int]:
    """Records by compiled code, and others."""
    native, counts = records_to_arrow.DEFAULT_LAYOUT.compiled_builder(), [0, 0]
    assert native is not None
    with binlogtool.open(path, backend="native") as log:
        for part in log.record_ranges():
            if isinstance(part, RecordRange):
                for one in native.build_parts(part, "log"):
                    counts[isinstance(one, RecordBlock)] += len(one)
            elif isinstance(part, RecordBlock):
                counts[1] += len(part)
    return counts[0], counts[1]


@pytest.mark.full
@pytest.mark.parametrize(("name", "least"), [("tarantool", 150), ("mysql-binlog", 150)])
def test_real_files_have_the_same_rows_and_most_by_compiled_code(corpus: Path, name: str, least: int) -> None:
    count = native = others = 0
    files = sorted(p for p in (corpus / name).rglob("*") if p.is_file() and p.stat().st_size < 1 << 20)
    for path in take_sample(files, 3):
        try:
            made = by_compiled_code(path)
        except BinlogtoolError:
            continue
        same(path)
        count, native, others = count + 1, native + made[0], others + made[1]
    assert count >= (least if EXHAUSTIVE else least // 4)
    assert native > others


EXAMPLES = 100 if EXHAUSTIVE else 40


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nativerows") / "00000000000000000000.xlog"


@pytest.mark.full
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(st.booleans(), st.lists(any_rows, min_size=1, max_size=4)), min_size=1, max_size=12))
def test_any_rows_are_the_same(file: Path, blocks: list[tuple[bool, list[bytes]]]) -> None:
    file.write_bytes(make.log(make.block(b"".join(part), zstd=packed) for packed, part in blocks))
    same(file)


@pytest.mark.full
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(hostile, min_size=1, max_size=20))
def test_hostile_values_give_the_same_rows(file: Path, raw: list[bytes]) -> None:
    file.write_bytes(make.log(make.block(raw_row(i + 1, value)) for i, value in enumerate(raw)))
    same(file)


@pytest.mark.parametrize("time", [0.000001, 951782400.0, 951868799.999999, 4107542400.5, 1795232544.25, 253402300799.5])
def test_times_come_back_from_their_text(file: Path, time: float) -> None:
    """Also around the ends of February."""
    file.write_bytes(make.log([make.block(raw_row(1, b"\x01", time=time))]))
    (value,) = same(file)["time"].cast(pa.int64()).to_pylist()
    assert abs(value - time * 1e6) < 64


def test_texts_with_escapes_are_texts_in_the_end(file: Path) -> None:
    names = ['quote"', "back\\slash", "tab\t", "plain", "null", "\u202e", ""]
    parts = [make.dml(i + 1, space=280, tuple=[600 + i, 1, name, "memtx", 0]) for i, name in enumerate(names)]
    parts += [make.dml(20 + i, space=600 + i) for i in range(len(names))]
    file.write_bytes(make.log(map(make.block, parts)))
    assert same(file)["object"].to_pylist()[len(names) :] == names


def test_a_batch_ends_where_the_rows_or_the_room_do(file: Path) -> None:
    big = [make.dml(i + 1, tuple=[i, "x" * 300_000]) for i in range(30)]
    small = [make.dml(100 + i, tuple=[i]) for i in range(20_000)]
    giant = [make.dml(50_000, tuple=["y" * (5 << 20)])]
    blocks = [make.block(b"".join(small)), *map(make.block, [*big, *giant])]
    file.write_bytes(make.log(blocks))
    made = same(file)
    assert made.num_rows == 20_031
    assert max(made["body"].to_pylist(), key=len).count("y") == 5 << 20


@pytest.mark.parametrize(
    ("columns", "payload"),
    [
        (["seq"], "decoded"), (["findings"], "decoded"), (["body", "file"], "decoded"), (["extras", "type"], "none"),
        ((), "none"), ((), "raw"), (["time", "origin", "txn", "checksum_ok", "checksum_algorithm"], "none"),
    ],
)  # fmt: skip
def test_only_the_columns_that_are_asked_for_are_made(file: Path, columns: list[str], payload: str) -> None:
    parts = [make.block(make.dml(i + 1, tuple=[i]), zstd=i % 2 == 0) for i in range(50)]
    file.write_bytes(make.log([*parts, make.block(raw_row(90, b"\xc1"))]))
    shown = records_to_arrow.create_layout(columns, payload)
    assert same(file, shown).column_names == list(shown.names)


@pytest.mark.parametrize("chosen", [{"limit": 30}, {"skip": 7}, {"tail": 3}, {"objects": ("513",)}, {"stop": "seq:7"}])
def test_selected_records_are_the_same(file: Path, chosen: dict[str, object]) -> None:
    file.write_bytes(make.log(make.block(make.dml(i + 1, space=512 + i % 3, tuple=[i])) for i in range(50)))
    assert 0 < same(file, selection=Selection(**chosen)).num_rows < 50  # type: ignore[arg-type]
