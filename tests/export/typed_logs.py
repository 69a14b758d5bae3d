"""Conversions to typed tables, and logs for them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from binlogtool import convert
from binlogtool.export.manifest import Manifest


def tables(
    log: Path, out: Path, to: str = "parquet", **options: Any
) -> tuple[dict[str, list[dict[str, Any]]], Manifest]:
    """The rows of each table."""
    done = convert([log], to, out, per_table=True, **options)
    found = {one["name"]: rows(out / one["directory"]) for one in done.details["tables"]} if to == "parquet" else {}
    return found, done


def rows(folder: Path) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = pa.concat_tables(map(parquet.read_table, sorted(folder.glob("part-*")))).to_pylist()
    return made


def without_checksums(data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """A log as a server without checksums writes it; offset and size of its row events."""
    made, at, rows_at = bytearray(data[:4]), 4, list[tuple[int, int]]()
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at + 9)
        event = bytearray(data[at : at + size])
        if event[4] == 15:  # FORMAT_DESCRIPTION keeps its checksum, and says that there are none
            event[-5] = 0
        else:
            event = event[:-4]
            event[9:13] = struct.pack("<I", len(event))
        event[13:17] = struct.pack("<I", len(made) + len(event))
        if event[4] in (23, 24, 25, 30, 31, 32):
            rows_at.append((len(made), len(event)))
        made += event
        at += size
    return bytes(made), rows_at
