"""Unsigned values of Tarantool above 2^63 - 1: their columns hold them, other columns stay bigint."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.orc as orc
import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool import convert
from binlogtool.errors import UsageError
from binlogtool.spark.session import SparkJobSession
from tests.formats.tarantool.server import program

_SCRIPT = """
box.cfg{work_dir = arg[1], log = 'server.log'}
local wide = box.schema.space.create('wide', {format = {{'id', 'unsigned'}, {'u', 'unsigned', is_nullable = true},
    {'i', 'integer'}, {'small', 'unsigned'}}})
wide:create_index('pk')
wide:insert{1, 5, -7, 1}
wide:insert{2, 9223372036854775807ULL, -9223372036854775807LL - 1, 2}
wide:insert{3, 9223372036854775808ULL, 1, 3}
wide:insert{4, box.NULL, 18446744073709551615ULL, 4}
wide:replace{18446744073709551615ULL, 18446744073709551615ULL, 4, 5}
local plain = box.schema.space.create('plain', {format = {{'id', 'unsigned'}}})
plain:create_index('pk')
plain:insert{9223372036854775807ULL}
local rows = {}
for _, row in wide:pairs() do
    table.insert(rows, {tostring(row[1]), row[2] ~= nil and tostring(row[2]) or '', tostring(row[3]), tostring(row[4])})
end
io.stdout:write(require('json').encode(rows)) os.exit(0)
"""
_COLUMNS = ("id", "u", "i", "small")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int | None, ...]]]:
    """A log of a real server, and the rows that the server has then."""
    home = tmp_path_factory.mktemp("wide")
    words = [str(program()), "-", str(home)]
    done = subprocess.run(words, input=_SCRIPT.encode(), capture_output=True, check=True)
    said = [tuple(int(text.rstrip("UL")) if text else None for text in row) for row in json.loads(done.stdout)]
    assert len(said) == 5 and said[-1][0] == (1 << 64) - 1
    return home / "00000000000000000000.xlog", said


def _values(rows: list[dict[str, Any]]) -> list[tuple[int | None, ...]]:
    return [tuple(None if row[one] in (None, "") else int(row[one]) for one in _COLUMNS) for row in rows]


def _rows(to: str, folder: Path) -> list[dict[str, Any]]:
    (part,) = folder.glob("part-*")
    if to == "avro":
        with part.open("rb") as file:
            return [row for row in fastavro.reader(file) if isinstance(row, dict)]
    if to == "json":
        return list(map(json.loads, part.read_text().splitlines()))
    if to == "csv":
        texts = arrow_csv.ConvertOptions(column_types={name: pa.string() for name in _COLUMNS})
        made: list[dict[str, Any]] = arrow_csv.read_csv(part, convert_options=texts).to_pylist()
        return made
    table = parquet.read_table(part) if to == "parquet" else orc.read_table(part)
    assert [str(table.schema.field(name).type) for name in _COLUMNS] == ["decimal128(20, 0)"] * 3 + ["int64"]
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.mark.skipif(program() is None, reason="no tarantool")
@pytest.mark.parametrize("to", ["parquet", "orc", "avro", "json", "csv"])
def test_columns_become_wide_where_a_value_needs_it(
    told: tuple[Path, list[tuple[int | None, ...]]], tmp_path: Path, to: str
) -> None:
    log, said = told
    done = convert([log], to, tmp_path / "out", per_table=True)
    tables = {one["name"]: one for one in done.details["tables"]}
    kinds = {one["name"]: one["type"] for one in tables["wide"]["columns"]}
    assert kinds == {"id": "decimal(20,0)", "u": "decimal(20,0)", "i": "decimal(20,0)", "small": "bigint"}
    assert tables["plain"]["columns"] == [{"name": "id", "type": "bigint"}]
    assert [one.partition(": ")[2] for one in tables["wide"]["changes"]] == [
        "the column u (bigint) is decimal(20,0) now",
        "the column i (bigint) is decimal(20,0) now",
        "the column id (bigint) is decimal(20,0) now",
    ]
    made = _rows(to, tmp_path / "out" / "wide")
    assert _values(made) == said
    assert {row["unfit"] or None for row in made} == {None}


@pytest.mark.skipif(program() is None, reason="no tarantool")
@pytest.mark.parametrize("image", ["after", "both", "changes"])
def test_rows_of_a_notebook_have_them_in_one_schema(
    told: tuple[Path, list[tuple[int | None, ...]]], image: str
) -> None:
    with binlogtool.open(told[0]) as log:
        given = log.rows("wide", image=image)
        made = list(given)
        assert str(log.rows("plain").schema.field("id").type) == "int64"
    rows = [row["after"] for row in made] if image == "both" else made
    assert isinstance(rows[0]["u"], Decimal) and _values(rows) == told[1]
    assert {row["unfit"] for row in made} == {None}


def _schema(log: Path, **options: str) -> str:
    from binlogtool.spark.data_source import BinlogSource

    return BinlogSource({"path": str(log), "object": "wide", **options}).schema()


@pytest.mark.skipif(program() is None, reason="no tarantool")
def test_a_query_has_wide_columns_where_the_data_needs_them_or_the_option_asks(
    told: tuple[Path, list[tuple[int | None, ...]]], tmp_path: Path
) -> None:
    log, _ = told
    by_data, asked = _schema(log), _schema(log, unsigned="decimal")
    wide, small = ("`id`: decimal(20,0), `u`: decimal(20,0), `i`: decimal(20,0), `small`: ", "decimal(20,0)")
    assert f"struct<{wide}bigint>" in by_data and f"struct<{wide}{small}>" in asked
    with binlogtool.open(log) as opened:
        start = next(record.offset for record in opened.records() if record.object == "wide")
    before = tmp_path / log.name  # what is there when a stream begins: a space without rows
    before.write_bytes(log.read_bytes()[:start])
    later = _schema(before), _schema(before, unsigned="decimal")
    assert "struct<`id`: bigint, `u`: bigint, `i`: bigint, `small`: bigint>" in later[0]
    assert "struct<`id`: decimal(20,0), `u`: decimal(20,0), `i`: bigint, `small`: decimal(20,0)>" in later[1]
    with pytest.raises(UsageError, match="unsigned=wide: choose one of data, decimal"):
        _schema(log, unsigned="wide")


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.skipif(program() is None, reason="no tarantool")
def test_rows_of_a_query_have_the_values_of_the_server(
    told: tuple[Path, list[tuple[int | None, ...]]], spark_session: SparkJobSession
) -> None:
    log, said = told
    reader = spark_session.spark.read.format("binlogtool").option("object", "wide").option("unsigned", "decimal")
    found = [row.asDict(recursive=True) for row in reader.load(str(log)).orderBy("record").collect()]
    assert _values([row["after"] for row in found]) == said and {row["unfit"] for row in found} == {None}
