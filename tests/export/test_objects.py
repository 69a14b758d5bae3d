"""One table or space as a table with its own columns: exact values, told by what the servers were given."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError
from binlogtool.export.typed_columns import make_cell_converter, to_arrow_type
from binlogtool.formats.binlog_events.changes.row_event_table_reader import exported_type_name
from binlogtool.formats.binlog_events.values.column_types import ColumnType, TableMapColumn
from binlogtool.spark.data_source import BinlogSource
from binlogtool.spark.session import SparkJobSession
from tests.export import reading
from tests.export.reading import Row


def load(path: Path, name: str, **options: str) -> list[Row]:
    return reading.load(path, object=name, **options)


@pytest.fixture
def mysql(corpus: Path) -> Path:
    return corpus / "mysql-binlog" / "generated" / "mysql-9.7"


def test_extreme_values_of_mysql_keep_their_types(mysql: Path) -> None:
    """Rows 2 and 3 of the table hold the lowest and highest values of each type that MySQL's manual names."""
    _, low, high = load(mysql / "row-metadata-full" / "binlog.000001", "db_east1.orders2_all")[:3]
    wanted: list[tuple[str, Any, Any]] = [
        ("id", Decimal(2), Decimal(3)),
        ("c_t", -128, 127),
        ("c_su", 0, 65535),
        ("c_m", -8388608, 8388607),
        ("c_iu", 0, 4294967295),
        ("c_b", -(2**63), 2**63 - 1),
        ("c_bu", Decimal(0), Decimal(2**64 - 1)),
        ("c_d", -1.7976931348623157e308, 2.2250738585072014e-308),
        ("c_dec", Decimal("-99999999999999999999.9999999999"), Decimal("99999999999999999999.9999999999")),
        ("c_dec2", Decimal(-99999), Decimal(99999)),
        ("c_bit64", Decimal(0), Decimal(2**64 - 1)),
        ("c_year", 1901, 2155),
        ("c_date", date(1000, 1, 1), date(9999, 12, 31)),
        ("c_time6", "-838:59:59.000000", "838:59:59.000000"),
        ("c_dt6", datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),
        ("c_ts", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)),
    ]
    for name, lowest, highest in wanted:
        assert (low["after"][name], high["after"][name]) == (lowest, highest), name
    assert {low["op"], high["op"]} == {"INSERT"}
    assert low["before"] is None and low["unfit"] is None and low["absent"] is None


def test_numbers_of_a_vector_stay_a_list(mysql: Path) -> None:
    found = load(mysql / "vector" / "binlog.000001", "db_east1.orders2_v")
    assert [row["after"] for row in found[:2]] == [{"a": 1, "v": [1.0, 2.0, 3.0, 4.0]}, {"a": 2, "v": [0.5, -1.0]}]
    assert [(row["record"], row["row"]) for row in found[:2]] == [(found[0]["record"], 0), (found[0]["record"], 1)]


def test_columns_that_an_image_lacks_are_told_from_nulls(mysql: Path) -> None:
    """The names are those of the log's own CREATE TABLE: its maps have none."""
    path = mysql / "row-minimal-types" / "binlog.000001"
    row = next(row for row in load(path, "db_east1.orders2_all") if row["op"] == "UPDATE")
    assert row["before"]["id"] == Decimal(1) and row["after"]["c_i"] == 42
    assert "before.id" not in row["absent"] and "before.c_bool" in row["absent"]
    assert {"after.c_i", "after.c_tx"}.isdisjoint(row["absent"]) and "after.id" in row["absent"]


def test_the_fields_of_a_space_are_columns(corpus: Path) -> None:
    """What fill.lua of the corpus inserted into `all_types`."""
    folder = corpus / "tarantool" / "generated" / "single"
    found = [row for row in load(folder, "all_types") if row["file"].endswith("00000000.xlog")]
    rows = {row["after"]["id"]: row for row in found if row["after"]}
    uni = ["кириллица", "日本語", "emoji 😀", "tab\tnl\n", "quote\"'\\", "", "é", "nul\0byte"]
    negs = [-1, -32, -33, -128, -129, -32768, -32769, -2147483648, -2147483649, -(2**63)]
    ints = [0, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296]
    for i in range(1, 10):
        after = rows[i]["after"]
        assert (after["i"], after["n"], after["d"]) == (negs[i - 1], float(ints[i - 1]), i / 3)
        assert (after["s"], after["b"], after["vb"]) == (uni[(i - 1) % 8], i % 2 == 0, None)
        assert json.loads(after["arr"]) == [1, "x", {"nested": [True, False, None]}]
        assert json.loads(after["m"]) == {"k": i, "ключ": uni[0]}
        assert (rows[i]["op"], rows[i]["unfit"]) == ("INSERT", None)
    assert rows[3]["after"]["dec"] == "3.14159265358979323846"
    assert rows[3]["after"]["u"].endswith("-0000-4000-8000-000000000003")
    assert rows[10]["after"]["i"] == negs[9]
    assert rows[10]["after"]["n"] is None and json.loads(rows[10]["unfit"]) == {"after.n": 2**64 - 1}
    assert (rows[12]["op"], rows[12]["after"]["d"], rows[12]["after"]["s"]) == ("REPLACE", 1e300, "u" * 300)


def test_changes_without_images_have_their_key_and_operations(corpus: Path) -> None:
    found = load(corpus / "tarantool" / "generated" / "single", "ops")
    update = next(row for row in found if row["op"] == "UPDATE")
    assert update["after"] is None
    assert json.loads(update["key"]) == [1]
    assert json.loads(update["ops"])[0][0] == "="


@pytest.fixture
def replica(corpus: Path) -> Path:
    """Tarantool 2.6: what older files say of space 512, `shared`, those behind them do not repeat."""
    return corpus / "tarantool" / "generated" / "repl" / "a"


@pytest.mark.parametrize("name", ["shared", "512"])
def test_a_space_is_found_by_an_older_file_and_by_its_number(replica: Path, name: str) -> None:
    log = replica / "00000000000000000512.xlog"
    assert b"shared" not in log.read_bytes()
    found = load(log, name)
    assert len(found) == 11 and {row["file"] for row in found} == {str(log)}
    assert json.loads(found[-1]["after"]["tuple"])[1] == "a"


def test_a_space_that_nothing_describes_has_its_tuples_as_they_are(replica: Path, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000512.xlog"
    log.write_bytes((replica / log.name).read_bytes())
    (row,) = load(log, "516")
    assert (row["op"], row["after"]) == ("REPLACE", {"tuple": '[1,"a"]'})
    with pytest.raises(UsageError, match="517: the log contains no such table"):
        load(log, "517")


def test_a_space_by_number_has_the_columns_of_its_format(corpus: Path) -> None:
    folder = corpus / "tarantool" / "generated" / "single"
    named = load(folder, "all_types")
    made = [row.body["tuple"] for row in tuples(folder) if row.object == "_space"]
    (number,) = {one[0] for one in made if "all_types" in one}
    assert load(folder, str(number)) == named


def tuples(folder: Path) -> list[Any]:
    with binlogtool.open(folder) as log:
        return [row for row in log.records() if isinstance(row.body, dict) and isinstance(row.body.get("tuple"), list)]


def test_a_table_of_an_ibb_is_found_without_a_level(corpus: Path) -> None:
    """Counts of the real server's reader: the row events of app1.t1 are those of its groups."""
    folder = corpus / "mariadb-innodb-binlog" / "generated" / "edges"
    found = load(folder, "app1.t1")
    inserts = [row for row in found if row["op"] == "INSERT"]
    assert {row["op"] for row in found if row not in inserts} == {"QUERY"}  # statements in MIXED mode
    assert inserts[0]["after"]["@2"] == "y2c7hex2hcrk8cydduuubvsi7somd3i36"
    assert found == load(folder, "app1.t1", level="event")


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("mysql-binlog/generated/mysql-9.7/row-metadata-full/binlog.000001", "db_east1.orders2_all"),
        ("mysql-binlog/generated/mariadb-11.8/mixed-ddl", "db_east1.orders2"),
        ("tarantool/generated/single", "ops"),
    ],
)
def test_rows_of_a_query_are_those_of_convert(corpus: Path, tmp_path: Path, log: str, name: str) -> None:
    """Statements that empty the table are rows of a query only."""
    chosen = Selection(objects=(name,), on_damage="skip")
    binlogtool.convert([corpus / log], "parquet", tmp_path / "out", image="both", selection=chosen)
    converted = parquet.read_table(tmp_path / "out").to_pylist()
    found = load(corpus / log, name)
    assert [row for row in found if row["op"] not in ("TRUNCATE", "DROP")] == converted and converted


def test_a_query_reads_only_the_columns_that_it_names(mysql: Path) -> None:
    (row, *_) = load(mysql / "vector" / "binlog.000001", "db_east1.orders2_v", columns="after,op")
    assert list(row.items()) == [("after", {"a": 1, "v": [1.0, 2.0, 3.0, 4.0]}), ("op", "INSERT")]
    source = BinlogSource({"path": str(mysql / "vector"), "object": "db_east1.orders2_v", "columns": "op,body"})
    with pytest.raises(UsageError, match=r"columns: 'body' is none of op, seq"):
        source.schema()


def test_an_object_that_no_file_describes_is_refused(mysql: Path) -> None:
    source = BinlogSource({"path": str(mysql / "stmt" / "binlog.000001"), "object": "no.table"})
    with pytest.raises(UsageError, match=r"no\.table: the log contains no such table"):
        source.schema()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1 << 31), ("int", True), ("int", 1.0), ("bigint", 1 << 63), ("decimal(5,2)", "1000.00"),
        ("decimal(5,2)", "0.001"), ("double", (1 << 53) + 1), ("double", "1"), ("string", b"\xff"),
        ("date", "0000-00-00"), ("timestamp_ntz", "2024-00-10 00:00:00"), ("boolean", 1), ("array<string>", 3),
        ("binary", 3),
    ],
)  # fmt: skip
def test_a_value_is_exact_or_none_at_all(kind: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError, ArithmeticError)):
        make_cell_converter(kind)(value)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ({"type": "LONGLONG", "unsigned": True}, "decimal(20,0)"),
        ({"type": "LONGLONG", "unsigned": False}, "bigint"),
        ({"type": "NEWDECIMAL", "metadata": 10 << 8 | 2}, "decimal(10,2)"),
        ({"type": "NEWDECIMAL", "metadata": 65 << 8 | 30}, "string"),
        ({"type": "BLOB", "metadata": 2}, "binary"),
        ({"type": "BLOB", "metadata": 2, "charset": "utf8mb4"}, "string"),
        ({"type": "VARCHAR", "metadata": 20, "charset": "binary"}, "binary"),
        ({"type": "SET", "values": ["a", "b"]}, "array<string>"),
        ({"type": "ENUM"}, "int"),
        ({"type": "JSON", "metadata": 4}, "json"),
        ({"type": "TIMESTAMP2", "metadata": 6}, "timestamp"),
    ],
)
def test_columns_of_mysql_have_the_types_of_their_values(column: dict[str, Any], kind: str) -> None:
    given = {**column, "type": ColumnType[column["type"]], "values": tuple(column.get("values", ())) or None}
    assert exported_type_name(TableMapColumn(**given)) == kind
    to_arrow_type(kind)


def test_no_columns_of_other_types_are_made() -> None:
    with pytest.raises(UsageError, match="map<string,int>"):
        to_arrow_type("map<string,int>")


@pytest.mark.full
@pytest.mark.spark
def test_spark_queries_an_object_by_its_columns(spark_session: SparkJobSession, mysql: Path) -> None:
    def read() -> list[Any]:
        reader = spark_session.spark.read.format("binlogtool").option("object", "db_east1.orders2_all")
        frame = reader.load(str(mysql / "row-metadata-full" / "binlog.000001"))
        return (
            frame.where("op = 'INSERT' and after.id = 3").select("after.c_bu", "after.c_date", "after.c_dt6").collect()
        )

    ((number, day, time),) = spark_session.run_spark_action(read)
    assert (number, day, time) == (Decimal(2**64 - 1), date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59))


@pytest.mark.full
@pytest.mark.spark
def test_spark_tells_a_null_of_json_from_null(spark_session: SparkJobSession, samples: Path, tmp_path: Path) -> None:
    """What tests/workloads/types.sql gave to MySQL 9."""
    log = tmp_path / "binlog.000001"
    log.write_bytes(gzip.decompress((samples / "mysql_binlog/workloads/mysql-9/types.full.000001.gz").read_bytes()))

    def read() -> list[Any]:
        frame = spark_session.spark.read.format("binlogtool").option("object", "w.documents").load(str(log))
        return frame.where("op = 'INSERT' and after.id between 2 and 6").orderBy("after.id").select("after.j").collect()

    assert [text for (text,) in spark_session.run_spark_action(read)] == ["null", None, "[]", "{}", '"text"']
