"""Typed tables keep the ceiling of memory: what compressed events hold is counted when it is unpacked."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from tests.harness.ceilings import MIB, run
from tests.harness.mysql_writer import MARIADB, Made, binlog, lenenc, rows, table_map, transaction
from tests.sampling import EXHAUSTIVE

LIBRARIES = 160 * MIB
"""Python with Arrow, before anything is read."""


def log_of_texts(folder: Path, count: int, size: int) -> Path:
    """Row events of one compressed text each, `size` bytes long."""
    images = b"\0" + struct.pack("<I", size) + b"a" * size
    block = b"\x84" + struct.pack(">I", len(images)) + zlib.compress(images)
    texts = Made(166, (7).to_bytes(6, "little") + struct.pack("<H", 1) + lenenc(1) + b"\xff" + block)
    columns = table_map(b"\xfc", b"\4", optional=bytes([4]) + lenenc(2) + b"\1a" + bytes([2]) + lenenc(1) + lenenc(45))
    path = folder / "texts.000001"
    path.write_bytes(
        binlog([made for i in range(count) for made in transaction(columns, texts, number=i + 1)], MARIADB)
    )
    return path


@pytest.mark.full
@pytest.mark.parametrize("to", ["parquet", "json"])
def test_many_compressed_texts_are_converted_in_bounded_memory(tmp_path: Path, to: str) -> None:
    log = log_of_texts(tmp_path, 100 if EXHAUSTIVE else 60, 8 * MIB)
    words = ("convert", "--per-table", "--to", to, "-o", str(tmp_path / "out"), str(log))
    status, peak, _, said = run(tmp_path, "--max-memory", "256MiB", *words, backend="auto")
    assert (status, said) == (0, "")
    assert peak < 256 * MIB + LIBRARIES


@pytest.mark.full
def test_a_text_that_does_not_fit_ends_the_conversion_with_status_6(tmp_path: Path) -> None:
    log = log_of_texts(tmp_path, 20, 60 * MIB)
    words = ("convert", "--per-table", "--to", "parquet", "-o", str(tmp_path / "out"), str(log))
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", *words, backend="auto")
    assert status == 6 and said.count("\n") == 1 and "--max-memory" in said
    assert peak < 64 * MIB + LIBRARIES + 60 * MIB
    assert not (tmp_path / "out").exists()


@pytest.mark.full
@pytest.mark.parametrize(("to", "status"), [("parquet", 0), ("orc", 6)])
def test_long_values_are_written_below_the_ceiling_or_not_at_all(tmp_path: Path, to: str, status: int) -> None:
    """Parquet's statistics held four copies of a value, and ORC's writer ended the process when a look at the memory
    came within it (status 134)."""
    log = log_of_texts(tmp_path, 3, 64 * MIB)
    words = ("convert", "--per-table", "--to", to, "-o", str(tmp_path / "out"), str(log))
    found, peak, _, said = run(tmp_path, "--max-memory", "512MiB", *words, backend="auto")
    assert (found, said.count("\n")) == (status, status // 6)
    assert peak < 512 * MIB + LIBRARIES
    assert (tmp_path / "out").exists() is (status == 0)


@pytest.mark.full
def test_worker_processes_keep_the_ceiling_too(tmp_path: Path) -> None:
    """Two files, each with texts that do not fit: with --jobs 2 the workers took 860 MiB."""
    logs = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        logs.append(str(log_of_texts(tmp_path / str(number), 4, 100 * MIB)))
    words = ("convert", "--per-table", "--jobs", "2", "--to", "parquet", "-o", str(tmp_path / "out"), *logs)
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", *words, backend="auto")
    assert status == 6 and "--max-memory" in said
    assert peak < 64 * MIB + LIBRARIES + 100 * MIB


def log_of_lists(folder: Path, tables: int, size: int) -> Path:
    """Tables of one ENUM column with a list of names, each with one row."""
    names = lenenc(2) + b"".join(lenenc(size) + letter * size for letter in (b"a", b"b"))
    made = []
    for number in range(tables):
        optional = bytes([6]) + lenenc(len(names)) + names
        columns = table_map(b"\xfe", b"\xf7\x01", table_id=number, name=b"t%d" % number, optional=optional)
        made += transaction(columns, rows(b"\0\1", code=23, table_id=number), number=number + 1)
    path = folder / "lists.000001"
    path.write_bytes(binlog(made, MARIADB))
    return path


@pytest.mark.full
def test_rows_of_many_tables_take_no_more_memory_than_those_of_a_few(tmp_path: Path) -> None:
    """`rows` frees what it kept of the tables that it has printed; this grew to gigabytes."""
    log = log_of_lists(tmp_path, 40, 50_000)
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", "rows", str(log), backend="auto")
    assert status == 0, said
    assert peak < 64 * MIB + LIBRARIES


@pytest.mark.full
@pytest.mark.parametrize("words", [("rows",), ("convert", "--per-table", "--to", "parquet", "-o", "out")])
def test_a_text_that_does_not_fit_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Each look at the memory came after a copy of 100 MiB had been made: 287 and 384 MiB were taken."""
    monkeypatch.chdir(tmp_path)
    log = log_of_texts(tmp_path, 2, 100 * MIB)
    status, peak, _, said = run(tmp_path, "--max-memory", "64MiB", *words, str(log), backend="auto")
    assert status == 6 and "--max-memory" in said
    assert peak < 64 * MIB + LIBRARIES + 20 * MIB


def log_of_columns(folder: Path, columns: int, count: int) -> Path:
    """One transaction of rows with so many INT columns."""
    event = b"\0" * (columns // 8) + b"\1\0\0\0" * columns
    made = [rows(event, columns, flags=int(number == count - 1)) for number in range(count)]
    path = folder / "columns.000001"
    path.write_bytes(binlog(transaction(table_map(b"\x03" * columns), *made), MARIADB))
    return path


def test_append_keeps_the_ceiling_too(tmp_path: Path) -> None:
    """It took 470 MB for 300 rows at a ceiling of 64 MiB."""
    log = log_of_columns(tmp_path, 4096, 40)
    words = ("convert", "--append", "--per-table", "--to", "parquet", "-o", str(tmp_path / "out"), str(log))
    status, peak, _, said = run(tmp_path, "--max-memory", "8MiB", *words, backend="auto")
    assert status == 6 and "--max-memory" in said
    assert peak < 8 * MIB + LIBRARIES
    assert list((tmp_path / "out").glob("*/*.parquet")) == []
