"""The options of a query: which columns, how much of a record, what narrows it."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

import binlogtool
from binlogtool.errors import UsageError
from binlogtool.export import records_to_arrow
from binlogtool.export.manifest import parse_data_source_options
from binlogtool.spark.data_source import BinlogReader, BinlogSource, narrow_request
from binlogtool.spark.session import SparkJobSession
from tests.cli.samples import plain_log
from tests.export.reading import Row, load

DRIZZLE = "drizzle/basic-checksum.log"
IBB = "mariadb-innodb-binlog/dbase/binlog-000001.ibb"
"""Its page records have bodies that no compiled code writes."""


def test_the_columns_that_are_named_are_made_in_that_order(samples: Path) -> None:
    path = samples / DRIZZLE
    source = BinlogSource({"path": str(path), "columns": "seq, type,offset"})
    assert source.schema() == "`seq` bigint, `type` string, `offset` bigint"
    found = load(path, columns="seq, type,offset")
    assert list(found[0]) == ["seq", "type", "offset"]
    assert found == [{name: row[name] for name in ("seq", "type", "offset")} for row in load(path)]


def test_bodies_are_not_decoded_where_nobody_wants_them(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a body was decoded")

    log = tmp_path / Path(IBB).name
    log.write_bytes(gzip.decompress((samples / f"{IBB}.gz").read_bytes()))
    count = len(load(log))
    assert count > 10
    monkeypatch.setattr("binlogtool.core.decode_batches.BlockDecoder._decode_bodies", refuse)
    assert len(load(log, columns="file,type")) == count
    assert len(load(log, payload="none")) == count
    with pytest.raises(AssertionError, match="decoded"):
        load(log)


def test_the_raw_payload_is_the_bytes_of_the_file(samples: Path) -> None:
    path = samples / DRIZZLE
    data, found = path.read_bytes(), load(path, payload="raw")
    assert "body" not in found[0] and "raw binary" in BinlogSource(
        {"path": str(path), "payload": "raw"}
    ).schema().replace("`", "")
    assert [row["raw"] for row in found] == [data[row["offset"] :][: row["size"]] for row in found]
    assert b"".join(row["raw"] for row in found) == data


def test_without_payload_there_is_no_body(samples: Path) -> None:
    (names,) = {tuple(row) for row in load(samples / DRIZZLE, payload="none")}
    assert names == tuple(name for name, _ in records_to_arrow.COLUMNS if name != "body")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": "seq,nonsense"}, "'nonsense' is none of"),
        ({"columns": "seq,seq"}, "twice"),
        ({"columns": "body", "payload": "raw"}, "'body' is none of"),
        ({"payload": "all"}, "decoded, raw, none"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        BinlogSource({"path": "/x", **options}).schema()


def test_a_query_without_a_path_says_so() -> None:
    with pytest.raises(UsageError, match="load"):
        BinlogSource({}).reader(None)


def test_several_paths_and_directories_are_loaded_with_one_call(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes((samples / DRIZZLE).read_bytes())
    both = json.dumps([str(tmp_path), str(samples / "drizzle" / "rare-statements.log")])
    reader = BinlogSource({"paths": both}).reader(None)
    assert [member.path for member in reader.request.members] == [
        str(tmp_path / "a.log"),
        str(samples / "drizzle" / "rare-statements.log"),
    ]


def test_a_file_that_vanishes_behind_the_look_is_a_row(samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "gone.log"
    path.write_bytes(plain_log())
    reader = BinlogSource({"path": str(path), "columns": "type,findings"}).reader(None)
    path.unlink()
    (row,) = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert row["type"] == "DAMAGE" and "changed-while-read" in row["findings"]


def test_a_key_file_opens_an_encrypted_log(corpus: Path) -> None:
    folder = corpus / "mysql-binlog" / "generated" / "mysql-9.7" / "encrypted"
    closed = load(folder / "enc-bin.000001", columns="type")
    keys = next(path for path in sorted(folder.rglob("*")) if "keyring" in path.name and path.is_file())
    opened = load(folder / "enc-bin.000001", columns="type", keyfile=str(keys))
    assert {row["type"] for row in closed} == {"DAMAGE"}
    assert len(opened) > 5 and opened[0]["type"] == "FORMAT_DESCRIPTION"


# -- conditions --------------------------------------------------------------------------------------------------------


def pushed(path: Path, *filters: Filter) -> tuple[BinlogReader, list[Row]]:
    reader = BinlogSource({"path": str(path), "pushdown": "true"}).reader(None)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark has to apply them again"
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return reader, found


def test_a_reader_takes_conditions_only_where_the_user_says_so(samples: Path) -> None:
    from pyspark.sql.datasource import DataSourceReader

    path = str(samples / DRIZZLE)
    taking = [BinlogSource({"path": path, **more}).reader(None) for more in ({"pushdown": "true"}, {})]
    assert [type(reader).pushFilters is DataSourceReader.pushFilters for reader in taking] == [False, True]


def test_conditions_leave_out_the_records_that_do_not_fit(samples: Path) -> None:
    path = samples / DRIZZLE
    whole = load(path)
    cases: list[tuple[Filter, Any]] = [
        (EqualTo(("type",), "INSERT"), lambda r: r["type"] == "INSERT"),
        (In(("type",), ("INSERT", "DELETE")), lambda r: r["type"] in ("INSERT", "DELETE")),
        (EqualTo(("seq",), whole[9]["seq"]), lambda r: r["seq"] == whole[9]["seq"]),
        (
            GreaterThanOrEqual(("seq",), whole[40]["seq"]),
            lambda r: r["seq"] is not None and r["seq"] >= whole[40]["seq"],
        ),
        (LessThan(("seq",), whole[40]["seq"]), lambda r: r["seq"] is not None and r["seq"] <= whole[40]["seq"]),
        (EqualTo(("object",), whole[9]["object"]), lambda r: r["object"] == whole[9]["object"]),
        (EqualTo(("time",), whole[9]["time"]), lambda r: r["time"] == whole[9]["time"]),
    ]
    for condition, wanted in cases:
        _, found = pushed(path, condition)
        assert found == [row for row in whole if wanted(row)], condition
        assert 0 < len(found) < len(whole), condition


def test_a_range_of_time_is_closed_below_and_above(samples: Path) -> None:
    path = samples / DRIZZLE
    whole = load(path)
    first, last = whole[20]["time"], whole[50]["time"]
    wanted = [row for row in whole if row["time"] is not None and first <= row["time"] <= last]
    assert pushed(path, GreaterThanOrEqual(("time",), first), LessThanOrEqual(("time",), last))[1] == wanted
    assert pushed(path, GreaterThan(("time",), last + timedelta(days=9999)))[1] == []


def test_only_the_files_that_are_asked_for_are_opened(samples: Path, tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_bytes((samples / DRIZZLE).read_bytes())
    reader, found = pushed(tmp_path, In(("file",), (str(tmp_path / "b.log"), "/elsewhere")))
    assert [piece.member.name for part in reader.partitions() for piece in part.pieces] == [str(tmp_path / "b.log")]
    assert len(found) == 67


@pytest.mark.parametrize(
    "condition",
    [
        StringStartsWith(("type",), "INS"),
        IsNotNull(("type",)),
        EqualTo(("body",), "x"),
        EqualTo(("seq",), "text"),
        EqualTo(("seq",), -1),
        EqualTo(("time",), datetime(2020, 1, 1)),  # of no known zone
        EqualTo(("after", "id"), 1),
    ],
)
def test_conditions_that_are_not_understood_narrow_nothing(condition: Filter) -> None:
    request = parse_data_source_options({"path": "/x"}, finds_files=False)
    assert narrow_request(request, [condition]) == request


def test_two_ranges_of_time_are_their_common_part() -> None:
    request = parse_data_source_options({"path": "/x", "startTime": "5000000"}, finds_files=False)
    early, late = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)
    assert narrow_request(request, [GreaterThan(("time",), early)]).selection.start_time == 5_000_000
    assert narrow_request(request, [GreaterThan(("time",), late)]).selection.start_time == 9_000_000


@pytest.mark.full
@pytest.mark.spark
def test_spark_gets_the_same_rows_from_splits_and_with_conditions(
    spark_session: SparkJobSession, samples: Path, tmp_path: Path
) -> None:
    path = tmp_path / "transaction.log"
    path.write_bytes((samples / DRIZZLE).read_bytes() * 20)
    with binlogtool.open(path) as log:
        expected = [(r.record, r.offset, r.type, r.seq) for r in log.records()]
    inserts = sum(kind == "INSERT" for _, _, kind, _ in expected)

    def read() -> None:
        reader = spark_session.spark.read.format(BinlogSource.name()).option("columns", "record,offset,type,seq")
        frame = reader.option("splitSize", "64KiB").load([str(path)])
        assert frame.rdd.getNumPartitions() > 2
        assert frame.where("type = 'INSERT'").count() == inserts
        assert sorted(tuple(row) for row in frame.collect()) == expected, "a query must not narrow the next one"
        once = reader.option("pushdown", "true").load(str(path))
        assert once.where("type = 'INSERT' and seq >= 0").count() == inserts

    spark_session.run_spark_action(read)
    assert inserts > 0


def test_a_condition_travels_as_text_and_is_compiled_where_records_are_read() -> None:
    log = Path(__file__).parents[1] / "corpus/guides/mariadb/mariadb-bin.000002"
    assert [row["offset"] for row in load(log, where="object = 'shop.stock' and after.pieces < 10")] == [1611]
    with pytest.raises(UsageError, match=r"--where: column 1: a record has type"):
        parse_data_source_options({"path": str(log), "where": "pieces < 10"})
