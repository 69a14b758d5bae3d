"""Every table format, read by programs that did not write it; hostile texts, partitions, options."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from binlogtool import convert
from binlogtool.errors import InputOutputError, MissingExtraError, RefusedError, UsageError
from binlogtool.export import record_rows
from binlogtool.export.output_options import COMPRESSIONS, TableFileOptions
from binlogtool.spark import table_job
from binlogtool.spark.session import SparkJobSession

HOSTILE = (
    "a", "", None, " lead", "trail ", 'q"q', '"', '""', "a,b", "a\nb", "a\r\nb", "\r", "\n", "\x00", "a\x00b", "#c",
    "\\", '\\"', "\t", "é\u2028", "\ufeffx", "'", "=1+1", "-1", "+x", "@y", '"a",\n"b"\x00',
)  # fmt: skip
TIME = 1_700_000_000_000_001
TEXT_TIME = "2023-11-14T22:13:20.000001Z"


@pytest.fixture
def good(samples: Path) -> Path:
    return samples / "drizzle" / "basic-checksum.log"


def parts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("part-*"))


def hostile_rows() -> pa.Table:
    count = len(HOSTILE)
    columns: dict[str, Any] = {name: [None] * count for name, _ in record_rows.COLUMNS}
    columns |= {"record": range(count), "time": [TIME] * count, "checksum_ok": [True] * count}
    columns |= {"object": HOSTILE, "txn": HOSTILE, "body": [json.dumps(text) for text in HOSTILE]}
    return pa.table(columns, schema=record_rows.SCHEMA)


def written(session: SparkJobSession, shape: TableFileOptions, folder: Path) -> list[Path]:
    frame = table_job.prepare_frame(session.spark.createDataFrame(hostile_rows()).coalesce(1), shape)
    table_job.write_frame(frame, shape, folder.as_uri(), session.spark)
    return parts(folder)


@pytest.mark.spark
def test_hostile_texts_survive_csv(tmp_path: Path, spark_session: SparkJobSession) -> None:
    import pyarrow.csv

    (path,) = written(spark_session, TableFileOptions("csv"), tmp_path / "out")
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file, strict=True))
    assert [line["object"] for line in lines] == [text or "" for text in HOSTILE]
    assert [line["txn"] for line in lines] == [text or "" for text in HOSTILE]
    assert [json.loads(line["body"]) for line in lines] == list(HOSTILE)
    assert [line["record"] for line in lines] == [str(i) for i in range(len(HOSTILE))]
    assert {line["time"] for line in lines} == {TEXT_TIME}
    strict = pyarrow.csv.read_csv(
        path,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""],
            column_types={name: pa.string() for name in ("object", "txn", "body")},
        ),
    )  # fmt: skip
    assert strict["object"].to_pylist() == list(HOSTILE)


@pytest.mark.spark
def test_safe_csv_has_no_cell_that_starts_a_formula(tmp_path: Path, spark_session: SparkJobSession) -> None:
    (path,) = written(spark_session, TableFileOptions("csv", csv_safe=True, compression="gzip"), tmp_path / "out")
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        cells = [line["object"] for line in csv.DictReader(file, strict=True)]
    expected = [f"'{text}" if text and text[0] in "=+-@\t\r" else text or "" for text in HOSTILE]
    assert cells == expected
    assert "'=1+1" in cells and "'@y" in cells


@pytest.mark.spark
def test_hostile_texts_survive_json_and_avro(tmp_path: Path, spark_session: SparkJobSession) -> None:
    import fastavro

    (path,) = written(spark_session, TableFileOptions("json"), tmp_path / "json")
    lines = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    assert [line["object"] for line in lines] == list(HOSTILE)
    assert {line["time"] for line in lines} == {TEXT_TIME}
    assert set(lines[0]) == {name for name, _ in record_rows.COLUMNS}
    (path,) = written(spark_session, TableFileOptions("avro"), tmp_path / "avro")
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        found: list[Any] = list(reader)
        assert reader.codec == "deflate"
    assert [row["object"] for row in found] == list(HOSTILE)
    assert {row["time"] for row in found} == {datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)}
    assert {row["checksum_ok"] for row in found} == {True}


def records_of(to: str, path: Path) -> list[int]:
    """The record numbers in a file, by a reader of its own."""
    if to == "orc":
        import pyarrow.orc

        return [int(n) for n in pyarrow.orc.ORCFile(path).read()["record"].to_pylist()]
    if to == "avro":
        import fastavro

        with path.open("rb") as file:
            found: Any = fastavro.reader(file)
            return [row["record"] for row in found]
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    if to == "json":
        return [json.loads(line)["record"] for line in text.splitlines()]
    return [int(line["record"]) for line in csv.DictReader(text.splitlines(True), strict=True)]


@pytest.mark.spark
@pytest.mark.parametrize(("to", "compression"), [("orc", None), ("csv", "gzip"), ("json", "gzip"), ("avro", "xz")])
def test_a_table_holds_every_record_in_its_partition_and_its_manifest_has_its_hash(
    to: str, compression: str | None, good: Path, tmp_path: Path, spark_session: SparkJobSession
) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"session": spark_session, "compression": compression}
    done = convert([good], to, out, partition_by=("type", "date", "file"), **options)
    assert done.complete and done.rows == 67 == done.inputs[0].records
    assert {o.path: o.sha256 for o in done.outputs} == {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in parts(out)
    }
    plain = convert([good], "jsonl", tmp_path / "plain", lines=lambda b: b"".join(b"%s\n" % r.type.encode() for r in b))
    types = (tmp_path / "plain").read_text().splitlines()
    assert plain.rows == len(types)
    found = {n: p.relative_to(out).parts[0] for p in parts(out) for n in records_of(to, p)}
    assert found == {n: f"type={kind}" for n, kind in enumerate(types)}
    if to != "avro":
        return
    with pytest.raises(RefusedError, match="exists"):
        convert([good], to, out, **options)
    again = convert([good], to, out, overwrite=True, **options)
    assert again.rows == 67 and all("/" not in o.path for o in again.outputs)


@pytest.mark.spark
def test_a_row_that_is_lost_or_changed_on_the_way_is_found_out(
    good: Path, tmp_path: Path, spark_session: SparkJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = table_job.write_frame
    for change, words in (("record <> 3", "66 were written"), ("true", "bytes of text were read")):

        def lossy(frame: Any, shape: TableFileOptions, place: str, spark: Any, change: str = change) -> None:
            from pyspark.sql import functions as sql

            short = frame.where(change)
            write(
                short.withColumn("body", sql.substring("body", 1, 10)) if change == "true" else short,
                shape,
                place,
                spark,
            )

        monkeypatch.setattr(table_job, "write_frame", lossy)
        with pytest.raises(InputOutputError, match=words):
            convert([good], "json", tmp_path / "out", session=spark_session)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_an_avro_file_that_cannot_be_written_is_one_line(
    good: Path, tmp_path: Path, spark_session: SparkJobSession
) -> None:
    log = tmp_path / ("x" * 200 + ".log")
    log.write_bytes(good.read_bytes())
    (tmp_path / "o").mkdir()
    with pytest.raises(InputOutputError, match="File name too long") as caught:
        convert([log], "avro", tmp_path / "o" / "out", session=spark_session, partition_by=["file"])
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "o").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compression": "lzo"}, "--compression lzo: parquet can have zstd, gzip, snappy, lz4_raw, none"),
        ({"to": "csv", "compression": "zstd"}, "csv can have none, gzip, bzip2"),
        ({"partition_by": ["body"]}, "--partition-by body: choose of file, format, type"),
        ({"partition_by": ["type", "type"]}, "names a column twice"),
        ({"csv_safe": True}, "--csv-safe is only for --to csv"),
        ({"to": "raw", "compression": "gzip"}, "--compression is for tables"),
        ({"to": "raw", "partition_by": ["type"]}, "--partition-by is for tables"),
        ({"rewrite": ["a->b"]}, "--rewrite is for scripts"),
        ({"to": "sql", "rewrite": ["a=b"]}, "use 'old->new' with names of databases"),
        ({"to": "sql", "rewrite": ["a->b", "a->c"]}, "two new names"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_clear_line(
    options: dict[str, Any], words: str, good: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        convert([good], **{"to": "parquet", "output": tmp_path / "out", **options})
    assert list(tmp_path.iterdir()) == []


def test_avro_without_its_library_names_the_command_that_installs_it(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'binlogtool\[spark\]'"):
        convert([good], "avro", tmp_path / "out")


def test_every_table_has_a_default_compression_of_its_own_list() -> None:
    assert {to: TableFileOptions(to).codec for to in COMPRESSIONS} == {
        "parquet": "zstd", "orc": "zstd", "csv": "none", "json": "none", "avro": "deflate",
    }  # fmt: skip
