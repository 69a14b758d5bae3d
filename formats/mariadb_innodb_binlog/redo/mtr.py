"""Field type of the records of a mini-transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, ScalarKernel, TracePart
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import (
    MTR_SIZE_MAX,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.parts import trace_redo_records
from binlogtool.formats.mariadb_innodb_binlog.redo.records import find_records_end
from binlogtool.limits import Limits


class MtrRecords(Construct):  # type: ignore[misc]
    """Construct of all records of one mini-transaction, up to its end byte, as their bytes; their parts can be
    traced.

    Args:
        encrypted: only the type and the length of a record are readable.
    """

    kernel = ScalarKernel(find_records_end)

    def __init__(self, encrypted: bool = False) -> None:
        super().__init__()
        self.encrypted = encrypted

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        start = stream.tell()
        data = stream.read(MTR_SIZE_MAX + 1)
        _, end = find_records_end(data, 0, len(data))
        stream.seek(start)
        if end < 0:
            problem = "a record without a possible length" if end == -2 else "no end byte of the mini-transaction"
            raise MalformedError(problem, path, "payload-undecodable" if end == -2 else "length-out-of-bounds")
        return bytes(stream_read(stream, end, path))

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[TracePart]:
        """Trace the records by index, each with its parts."""
        return trace_redo_records(data, start, end, self.encrypted)
