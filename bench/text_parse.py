"""Rows out of a binary log the usual way: the text of the server's own tool, parsed line by line into Parquet.

    mariadb-binlog --base64-output=decode-rows -v LOG | python -m bench.text_parse OUT.parquet

Minimal, and no slower than it needs to be: one compiled expression finds what matters in pieces of 1 MiB, batches have
65,536 rows. One row for each row of a row event, one for each other event. Prints the counts as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as parquet

TEXT = ["--base64-output=decode-rows", "-v"]
PIECE = 1 << 20
BATCH_ROWS = 1 << 16
COMPRESSION = "zstd"

SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("type", pa.string()),
        ("server_id", pa.int64()),
        ("end_log_pos", pa.int64()),
        ("object", pa.string()),
        ("row", pa.string()),
    ]
)

ROW = rb"### (?:INSERT INTO|UPDATE|DELETE FROM) (?P<object>[^\n]+)(?:\n###(?: SET| WHERE|   [^\n]*))*"
HEADER = (
    rb"#(?P<time>\d{6} [ \d]\d:\d\d:\d\d) server id (?P<server>\d+)  end_log_pos (?P<end>\d+)"
    rb"(?: CRC32 0x[0-9a-f]+)? \t(?P<type>\w+)"
)
TOKEN = re.compile(rb"\n(?:# at (?P<at>\d+)|" + HEADER + rb"|" + ROW + rb")")
BORDER = b"\n# at "


@dataclass
class Parser:
    """Columns of the rows that are not written yet. A header line stands for the oldest `# at` without one."""

    events: int = 0
    select_rows: int = 0
    columns: list[list[Any]] = field(default_factory=lambda: [[] for _ in SCHEMA.names])
    _offsets: deque[bytes] = field(default_factory=deque)
    _event: tuple[Any, ...] | None = None

    def feed(self, text: bytes) -> None:
        """text: whole lines, each with its newline in front."""
        for found in TOKEN.finditer(text):
            if found["at"]:
                self._offsets.append(found["at"])
            elif found["type"]:
                self._flush()
                self.events += 1
                self._event = (
                    int(self._offsets.popleft()), moment(found["time"]), found["type"].decode(),
                    int(found["server"]), int(found["end"]),
                )  # fmt: skip
            else:
                self.select_rows += 1
                self._add(found["object"].decode(), found[0].decode(errors="replace"))

    def batches(self, at_end: bool) -> Iterator[pa.RecordBatch]:
        """Full batches; at the end all that is left."""
        if at_end:
            self._flush()
        if len(self.columns[0]) >= BATCH_ROWS or (at_end and self.columns[0]):
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(self.columns, SCHEMA.types, strict=True)], schema=SCHEMA
            )
            self.columns = [[] for _ in SCHEMA.names]

    def _flush(self) -> None:
        """The row of an event that had no rows."""
        if self._event is not None:
            self._put((*self._event, None, None))
            self._event = None

    def _add(self, object: str, row: str) -> None:
        if self._event is not None:
            self._of = self._event
            self._event = None
        self._put((*self._of, object, row))

    def _put(self, row: tuple[Any, ...]) -> None:
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)


@lru_cache(1024)
def moment(text: bytes) -> datetime:
    """261121  3:42:24"""
    return datetime.strptime(text.decode().replace("  ", " 0"), "%y%m%d %H:%M:%S").replace(tzinfo=UTC)


def pieces(source: BinaryIO) -> Iterator[bytes]:
    """The text in pieces that end before an event, each with a newline in front."""
    left = b"\n"
    while data := source.read(PIECE):
        left += data
        if (border := left.rfind(BORDER)) > 0:
            yield left[:border]
            left = left[border:]
    yield left


def parse(source: BinaryIO, out: Path) -> Parser:
    """Writes the Parquet file; the counts."""
    parser = Parser()
    with parquet.ParquetWriter(out, SCHEMA, compression=COMPRESSION) as writer:
        for piece in pieces(source):
            parser.feed(piece)
            for batch in parser.batches(at_end=False):
                writer.write_batch(batch)
        for batch in parser.batches(at_end=True):
            writer.write_batch(batch)
    return parser


if __name__ == "__main__":
    done = parse(sys.stdin.buffer, Path(sys.argv[1]))
    print(json.dumps({"events": done.events, "rows": done.select_rows}))
