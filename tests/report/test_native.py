"""Lines by compiled code and lines by the general writer must be the same bytes, whatever the records are."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import BinlogtoolError
from binlogtool.limits import Limits
from tests.cli.invoke import invoke
from tests.formats.tarantool import make
from tests.package_figures.written import written
from tests.report.native_lines import hostile, raw_row, rows, same
from tests.sampling import EXHAUSTIVE


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("native") / "00000000000000000000.xlog"


# -- real files --------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_real_files_are_written_the_same_and_most_rows_by_compiled_code(corpus: Path) -> None:
    paths = [p for p in (corpus / "tarantool").rglob("*") if p.suffix in (".xlog", ".snap", ".vylog", ".run", ".index")]
    assert len(paths) > 150
    count = others = 0
    for path in sorted(paths):
        try:
            done = same(path)
        except BinlogtoolError:
            continue
        if path.suffix in (".xlog", ".snap"):
            count, others = count + done.native, others + done.others
        else:
            assert done.native == 0
    assert count > 8 * others


def test_records_without_kernels_are_written_by_the_general_writer(corpus: Path) -> None:
    path = corpus / "mariadb-innodb-binlog" / "generated" / "basic" / "binlog-000000.ibb"
    done = same(path)
    assert done.native == 0 and done.others > 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "share"),
    [("drizzle", 0.98), ("eblob", 0.9), ("manticore", 0.85), ("mysql-binlog", 0.75), ("tarantool", 0.88)],
)
def test_compiled_code_writes_most_records_of_a_format(corpus: Path, name: str, share: float) -> None:
    """Also of damaged and forged logs, and of all that is left to the general writer."""
    found = written(corpus / name)
    compiled, general = found.compiled.total(), found.general.total()
    assert compiled > 1500 and compiled / (compiled + general) > share


EXAMPLES = 150 if EXHAUSTIVE else 50

# -- made files --------------------------------------------------------------------------------------------------------


@pytest.mark.full
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(st.booleans(), st.lists(rows, min_size=1, max_size=4)), min_size=1, max_size=12))
def test_any_rows_are_written_the_same(file: Path, blocks: list[tuple[bool, list[bytes]]]) -> None:
    file.write_bytes(make.log(make.block(b"".join(part), zstd=packed) for packed, part in blocks))
    same(file)


@pytest.mark.full
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(hostile, min_size=1, max_size=20))
def test_hostile_values_are_written_the_same_and_never_read_beyond_their_row(file: Path, raw: list[bytes]) -> None:
    file.write_bytes(make.log(make.block(raw_row(i + 1, value)) for i, value in enumerate(raw)))
    same(file)


def test_doubles_of_any_bits_are_written_the_same(file: Path) -> None:
    import random

    source = random.Random(7)
    patterns = [source.getrandbits(64) for _ in range(2000)]
    patterns += [source.randrange(1007, 1076) << 52 | source.getrandbits(52) for _ in range(20000)]
    patterns += [struct.unpack(">Q", struct.pack(">d", 1.79e9 + n / 2**22))[0] for n in range(0, 2**24, 997)]
    values = [b"\xcb" + number.to_bytes(8, "big") for number in patterns]
    file.write_bytes(make.log(make.block(raw_row(i + 1, value)) for i, value in enumerate(values)))
    done = same(file)
    assert done.native > 30000


@pytest.mark.parametrize("depth", [1, 14, 15, 16, 17, 62, 63, 64, 65])
def test_nesting_is_followed_as_far_as_the_limits_allow(file: Path, depth: int) -> None:
    arrays, maps = b"\x91" * depth + b"\x01", b"\x81\xa1k" * depth + b"\xc0"
    file.write_bytes(make.log([make.block(raw_row(1, arrays)), make.block(raw_row(2, maps))]))
    assert same(file).native == (2 if depth < 16 else 0)
    same(file, limits=Limits(max_depth=10))


def test_a_record_that_does_not_fit_into_the_buffer_is_written_all_the_same(file: Path) -> None:
    """Sizes around what is left of the buffer, and values larger than all of it."""
    texts: list[Any] = ["x" * (size * 1000 + i) for i, size in enumerate([1, 170, 175, 300, 1100, 2, 60, 90, 120] * 3)]
    rows = [make.dml(i + 1, tuple=[i, text, "\x01" * (i * 9)]) for i, text in enumerate(texts)]
    file.write_bytes(make.log(map(make.block, rows)))
    done = same(file)
    assert done.native > 3 and done.others > 3


def test_the_buffer_may_fill_up_at_any_byte_of_a_record(file: Path) -> None:
    rows = [make.dml(i + 1, tuple=[i, {"k": [1.5, None, True]}, "y" * (i % 61)]) for i in range(12000)]
    file.write_bytes(make.log(make.block(b"".join(rows[i : i + 7])) for i in range(0, len(rows), 7)))
    assert same(file).others == 0


def spaces(count: int) -> Iterator[bytes]:
    for i in range(count):
        yield make.dml(3 * i + 1, space=600 + i)
        name = "name\u202e\"'" if i == 5 else f"space {i}"
        yield make.dml(3 * i + 2, space=280, tuple=[600 + i, 1, name, "memtx", 0])
        yield make.dml(3 * i + 3, space=600 + i)


@pytest.mark.parametrize("chosen", [{}, {"skip": 4}, {"limit": 5}, {"skip": 20, "limit": 30}, {"start": "record:5"}])
def test_names_of_spaces_are_known_from_the_row_on_that_tells_them(file: Path, chosen: dict[str, Any]) -> None:
    """Also from rows that are not selected."""
    file.write_bytes(make.log(map(make.block, spaces(40))))
    done = same(file, Selection(**chosen))
    if not chosen:
        objects = [json.loads(line)["object"] for line in done.text.splitlines()]
        assert objects[:6] == ["600", "_space", "space 0", "601", "_space", "space 1"]
        assert objects[17] == "name\u202e\"'"


def test_names_without_number_are_left_to_the_general_writer(file: Path) -> None:
    """Each new name changes the table that compiled code reads: their number is bounded, and so is the time."""
    known = [make.dml(i + 1, space=280, tuple=[10000 + i, 1, f"s{i}"]) for i in range(5000)]
    rest = [make.dml(i, space=9000 + i) for i in range(6000, 12000)]
    file.write_bytes(make.log(map(make.block, known + rest)))
    assert same(file).native == 0
    file.write_bytes(make.log(map(make.block, known[:3000] + rest)))
    assert same(file).native > 4000


def test_selected_records_are_the_same_records(file: Path) -> None:
    rows = [make.dml(i + 1, space=512 + i % 3, tuple=[i]) for i in range(5000)]
    file.write_bytes(make.log(map(make.block, rows)))
    for chosen in ({"limit": 3000}, {"skip": 2050}, {"tail": 7}, {"objects": ("513",)}, {"stop": "seq:77"}):
        same(file, Selection(**chosen))


def test_damage_between_records_is_told_at_its_place(file: Path) -> None:
    blocks = [make.block(make.dml(i + 1)) for i in range(50)]
    blocks[20] = blocks[20][:-1] + b"\x00"
    file.write_bytes(make.log(blocks))
    assert same(file).native == 49


def test_limits_that_compiled_code_does_not_know_turn_it_off(file: Path) -> None:
    file.write_bytes(make.log([make.block(make.dml(1))]))
    assert same(file, limits=Limits(max_depth=15)).native == 0
    assert same(file, limits=Limits(max_depth=16)).native == 1


def test_a_file_name_that_is_no_text_is_written_the_same(tmp_path: Path) -> None:
    path = tmp_path / b"\xff\x80 \x7f.xlog".decode("utf-8", "surrogateescape")
    path.write_bytes(make.log([make.block(make.dml(1))]))
    assert same(path).native == 1


def test_the_command_writes_the_same_with_and_without_compiled_code(file: Path) -> None:
    file.write_bytes(make.log(map(make.block, spaces(30))))
    for options in (
        [],
        ["--limit", "7"],
        ["--bytes", "base64"],
        ["--no-offsets"],
        ["--decode", "header"],
        ["--tail=3"],
    ):
        outputs = [
            invoke("dump", "-O", "jsonl", *options, str(file), environment={"BINLOGTOOL_BACKEND": backend})
            for backend in ("native", "python")
        ]
        assert outputs[0] == outputs[1]
        assert outputs[0].code == 0 and outputs[0].out.count(b"\n") > 2
