"""Typed tables keep the ceiling of memory: what compressed events hold is counted when it is unpacked."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from tests.harness.ceilings import MIB, run
from tests.harness.mysql_writer import MARIADB, Made, binlog, lenenc, table_map, transaction
from tests.sampling import EXHAUSTIVE

LIBRARIES = 160 * MIB
"""Python with Arrow, before anything is read."""


def log_of_texts(folder: Path, count: int, size: int) -> Path:
    """Row events of one compressed text each, `size` bytes long."""
    images = b"\0" + struct.pack("<I", size) + b"a" * size
    block = b"\x84" + struct.pack(">I", len(images)) + zlib.compress(images)
    rows = Made(166, (7).to_bytes(6, "little") + struct.pack("<H", 1) + lenenc(1) + b"\xff" + block)
    columns = table_map(b"\xfc", b"\4", optional=bytes([4]) + lenenc(2) + b"\1a" + bytes([2]) + lenenc(1) + lenenc(45))
    path = folder / "texts.000001"
    path.write_bytes(binlog([made for i in range(count) for made in transaction(columns, rows, number=i + 1)], MARIADB))
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
