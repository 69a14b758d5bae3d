"""Every table format, read by programs that did not write it; hostile texts, partitions, options."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute
import pytest

from binlogtool import convert
from binlogtool.errors import InputOutputError, MissingExtraError, RefusedError, UsageError
from binlogtool.export import records_to_arrow, table_files
from binlogtool.export.output_options import COMPRESSIONS, TableFileOptions
from binlogtool.export.table_files import TableFileSink
from binlogtool.export.write_record_tables import parse_partition_values

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
    columns: dict[str, Any] = {name: [None] * count for name, _ in records_to_arrow.COLUMNS}
    columns |= {"record": range(count), "time": [TIME] * count, "checksum_ok": [True] * count}
    columns |= {"object": HOSTILE, "txn": HOSTILE, "body": [json.dumps(text) for text in HOSTILE]}
    return pa.table(columns, schema=records_to_arrow.SCHEMA)


def write_files(shape: TableFileOptions, folder: Path) -> list[Path]:
    sink = TableFileSink(folder, shape, records_to_arrow.SCHEMA, 1 << 28)
    sink.add(hostile_rows())
    sink.close()
    return parts(folder)


def test_hostile_texts_survive_csv(tmp_path: Path) -> None:
    import pyarrow.csv

    (path,) = write_files(TableFileOptions("csv"), tmp_path / "out")
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


def test_safe_csv_has_no_cell_that_starts_a_formula(tmp_path: Path) -> None:
    (path,) = write_files(TableFileOptions("csv", csv_safe=True, compression="gzip"), tmp_path / "out")
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        cells = [line["object"] for line in csv.DictReader(file, strict=True)]
    expected = [f"'{text}" if text and text[0] in "=+-@\t\r" else text or "" for text in HOSTILE]
    assert cells == expected
    assert "'=1+1" in cells and "'@y" in cells


def test_hostile_texts_survive_json_and_avro(tmp_path: Path) -> None:
    import fastavro

    (path,) = write_files(TableFileOptions("json"), tmp_path / "json")
    lines = [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    assert [line["object"] for line in lines] == list(HOSTILE)
    assert {line["time"] for line in lines} == {TEXT_TIME}
    assert set(lines[0]) == {name for name, _ in records_to_arrow.COLUMNS}
    (path,) = write_files(TableFileOptions("avro"), tmp_path / "avro")
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
        return [json.loads(line)["record"] for line in text.split("\n")[:-1]]
    return [int(line["record"]) for line in csv.DictReader(text.splitlines(True), strict=True)]


@pytest.mark.parametrize(("to", "compression"), [("orc", None), ("csv", "gzip"), ("json", "gzip"), ("avro", "xz")])
def test_a_table_holds_every_record_in_its_partition_and_its_manifest_has_its_hash(
    to: str, compression: str | None, good: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"compression": compression}
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


@pytest.mark.parametrize("to", COMPRESSIONS)
def test_a_row_that_is_lost_or_changed_on_the_way_is_found_out(
    to: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = table_files.create_table_file
    for change, words in (
        (lambda table: table.slice(1), "67 rows were read and 66 were written"),
        (
            lambda table: table.set_column(17, "body", compute.utf8_slice_codeunits(table["body"], 0, 10)),
            "bytes of text",
        ),
    ):

        def lossy(*arguments: Any, change: Callable[[pa.Table], pa.Table] = change, **options: Any) -> Any:
            file = create(*arguments, **options)
            return SimpleNamespace(write=lambda table: file.write(change(table)), close=file.close)

        monkeypatch.setattr(table_files, "create_table_file", lossy)
        with pytest.raises(InputOutputError, match=words):
            convert([good], to, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []


def test_many_partitions_keep_few_files_open_and_each_has_its_rows(tmp_path: Path) -> None:
    count = 500
    columns: dict[str, Any] = {name: [None] * count for name in records_to_arrow.SCHEMA.names}
    columns |= {
        "record": range(count),
        "seq": [i % 200 for i in range(count)],
        "object": ["a/b", "%5F", None, "", "__none__"] * 100,
    }
    rows = pa.table(columns, schema=records_to_arrow.SCHEMA)
    sink = TableFileSink(tmp_path, TableFileOptions("csv", ("seq", "object")), records_to_arrow.SCHEMA, 1 << 12)
    for i in range(0, count, 50):
        sink.add(rows.slice(i, 50))
    sink.close()
    found = {}
    for path in parts(tmp_path):
        values = parse_partition_values(path.relative_to(tmp_path))
        for line in csv.DictReader(path.read_text().splitlines(True)):
            found[int(line["record"])] = values
    assert found == {
        i: {"seq": str(i % 200), "object": [*("a/b", "%5F"), None, None, "__none__"][i % 5]} for i in range(count)
    }
    assert sum(file.rows for file in sink.files) == count and len(sink.files) == len(parts(tmp_path))


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    sink = TableFileSink(tmp_path, TableFileOptions("json"), records_to_arrow.SCHEMA, 1 << 12, file_size=1)
    for _ in range(3):
        sink.add(hostile_rows())
    sink.close()
    assert [len(records_of("json", path)) for path in parts(tmp_path)] == [len(HOSTILE)] * 3


def test_an_avro_file_that_cannot_be_written_is_one_line(good: Path, tmp_path: Path) -> None:
    log = tmp_path / ("x" * 200 + ".log")
    log.write_bytes(good.read_bytes())
    (tmp_path / "o").mkdir()
    with pytest.raises(InputOutputError, match="File name too long") as caught:
        convert([log], "avro", tmp_path / "o" / "out", partition_by=["file"])
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
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[arrow\]'"):
        convert([good], "avro", tmp_path / "out")


def test_every_table_has_a_default_compression_of_its_own_list() -> None:
    assert {to: TableFileOptions(to).codec for to in COMPRESSIONS} == {
        "parquet": "zstd", "orc": "zstd", "csv": "none", "json": "none", "avro": "deflate",
    }  # fmt: skip
