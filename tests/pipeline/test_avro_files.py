"""The writer of Avro behind Spark: tasks that are tried again, and what becomes of the files of those that failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

import binlogtool
from binlogtool.core.open_log import FilePart
from binlogtool.core.record_selection import FileFinding, RecordBlock, Selection
from binlogtool.errors import InputOutputError
from binlogtool.export import record_rows
from binlogtool.export.record_rows import read_row_parts
from binlogtool.spark.write_tables import AvroWriter
from tests.pipeline.appending import expected, sources


@pytest.fixture
def batches(samples: Path) -> list[pa.RecordBatch]:
    file, made = str(sources("mariadb", samples)[0]), list[pa.RecordBatch]()
    with binlogtool.open(file) as log:
        for one in read_row_parts(log, file, Selection(), FilePart(None, None), record_rows.DEFAULT_LAYOUT):
            assert not isinstance(one, FileFinding)
            made += record_rows.DEFAULT_LAYOUT.build_batches(one) if isinstance(one, RecordBlock) else [one]
    return made


def breaking_off(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that fails behind some rows."""
    yield from batches
    raise RuntimeError("broke off")


def offsets(place: Path) -> list[int]:
    """Of the rows of all files, as another reader finds them."""
    found = []
    for path in sorted(place.rglob("*.avro")):
        with path.open("rb") as file:
            found += [row["offset"] for row in fastavro.reader(file) if isinstance(row, dict)]
    return found


@pytest.mark.parametrize("partitions", [(), ("type",)])
def test_rows_of_a_task_that_was_tried_again_are_there_once(
    partitions: tuple[str, ...], batches: list[pa.RecordBatch], samples: Path, tmp_path: Path
) -> None:
    """The first try broke off, the second one's word got lost, the third one counts; one task had no rows."""
    place = tmp_path / "out"
    table = pa.Table.from_batches(batches).sort_by([(name, "ascending") for name in partitions] or "offset")
    sorted_ = table.to_batches()
    writer = AvroWriter(str(place), "deflate", partitions)
    with pytest.raises(RuntimeError, match="broke off"):
        writer.write(breaking_off(sorted_))
    writer.write(iter(sorted_))
    third = writer.write(iter(sorted_))
    assert os.listdir(place) == ["_temporary"]  # nothing is there under its name yet
    writer.commit([third, None, writer.write(iter(()))])
    assert sorted(offsets(place)) == [at for _, _, at in expected("mariadb", sources("mariadb", samples)[0])]
    assert {name for name in os.listdir(place) if name.startswith(("_", "."))} == {"_SUCCESS"}


def test_a_job_that_failed_leaves_no_file(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    writer = AvroWriter(str(tmp_path / "out"), "deflate", ())
    writer.write(iter(batches))
    writer.abort([])
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_a_task_that_cannot_write_says_where(batches: list[pa.RecordBatch], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputOutputError, match=r"Not a directory|File exists"):
        AvroWriter(str(tmp_path / "out"), "deflate", ()).write(iter(batches))
