"""What tasks count of the rows that they hand to Spark, and that a writer which loses some of it is found out."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlogtool import convert
from binlogtool.core.open_log import WHOLE_FILE
from binlogtool.errors import InputOutputError
from binlogtool.export import record_rows
from binlogtool.export.manifest import ReadRequest, list_members
from binlogtool.export.output_options import TableFileOptions
from binlogtool.spark import session as session_module
from binlogtool.spark import table_job
from binlogtool.spark.data_source import BinlogReader
from binlogtool.spark.session import SparkJobSession, SparkProgress
from binlogtool.spark.write_tables import ArrowRowMapper, RowTotals, total_rows


def three_rows() -> pa.Table:
    columns: dict[str, Any] = {name: [None] * 3 for name in record_rows.SCHEMA.names}
    columns |= {"record": [0, 1, None], "size": [10, 20, 5], "body": ["=1", "", None], "object": ["é", None, "-x"]}
    return pa.table({**columns, "type": ["A", "B", "DAMAGE"]}, schema=record_rows.SCHEMA)


def test_rows_texts_records_and_bytes_are_counted() -> None:
    texts = len("=1" + "A" + "B" + "DAMAGE" + "-x") + len("é".encode())
    assert total_rows(three_rows(), TableFileOptions("parquet")) == RowTotals(3, texts, 2, 35, 1)
    assert total_rows(three_rows(), TableFileOptions("csv", csv_safe=True)).text_bytes == texts + 2
    assert total_rows(three_rows(), TableFileOptions("parquet", ("type",))).text_bytes == texts - len("ABDAMAGE")
    assert total_rows(record_rows.SCHEMA.empty_table(), TableFileOptions("parquet")) == RowTotals()


class Kept:
    """In place of an accumulator."""

    def __init__(self) -> None:
        self.value = RowTotals()

    def add(self, more: RowTotals) -> None:
        self.value += more


def test_each_number_stands_for_the_rows_of_one_group(samples: Path) -> None:
    members = tuple(list_members(str(samples / "drizzle"), "drizzle"))
    reader, sums = BinlogReader(ReadRequest(members, 3, cuts=((WHOLE_FILE,), *[None] * (len(members) - 1)))), Kept()
    groups = reader.partitions()
    assert len(groups) > 2
    handing = pickle.loads(pickle.dumps(ArrowRowMapper(reader, TableFileOptions("parquet"), sums)))
    for number, group in enumerate(groups):
        found = list(handing(iter([pa.record_batch({"id": [number]})])))
        assert found == list(reader.read(group)) and found
    assert handing._totals.value.rows == sum(one.num_rows for group in groups for one in reader.read(group))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("lossy", "told"),
    [
        (lambda frame, shape: frame.filter("record != 5"), "67 rows were read and 66 were written"),
        (lambda frame, shape: frame.withColumn("format", frame["type"]), "bytes of text were read and"),
    ],
)
def test_what_a_writer_loses_is_noticed(
    lossy: Callable[[Any, TableFileOptions], Any],
    told: str,
    samples: Path,
    tmp_path: Path,
    spark_session: SparkJobSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_job, "prepare_frame", lossy)
    with pytest.raises(InputOutputError, match=told):
        convert([samples / "drizzle" / "basic-checksum.log"], "parquet", tmp_path / "out", session=spark_session)
    assert not list(tmp_path.iterdir())


@pytest.mark.spark
def test_the_plan_copies_no_row_once_more(samples: Path, spark_session: SparkJobSession) -> None:
    reader = BinlogReader(ReadRequest(tuple(list_members(str(samples / "drizzle" / "basic-checksum.log"), "auto"))))
    frame = ArrowRowMapper(reader, TableFileOptions("parquet"), Kept()).to_dataframe(spark_session.spark)
    assert frame.schema == spark_session.spark.createDataFrame([], record_rows.DDL).schema
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "MapInArrow" in plan and "Project" not in plan


@pytest.mark.spark
def test_nobody_asks_for_progress_that_is_not_shown(
    samples: Path, tmp_path: Path, spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def progress(session: SparkJobSession, group: str, waiting: str) -> SparkProgress:
        asked.append(group)
        return SparkProgress(0, 1)

    monkeypatch.setattr(SparkJobSession, "_read_progress", progress)
    monkeypatch.setattr(session_module, "_POLL_INTERVAL_S", 0.001)  # the job may take less than the usual 0.2 s
    log = samples / "drizzle" / "basic-checksum.log"
    convert([log], "parquet", tmp_path / "unseen", session=spark_session)
    assert not asked
    convert([log], "parquet", tmp_path / "seen", session=spark_session, on_step=lambda step: None)
    assert asked
