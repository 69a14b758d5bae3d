"""Field type of the records of a mini-transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from construct import Construct, stream_read, stream_write

from binlogtool.formats.fields import MalformedError, Part, ScalarKernel
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import (
    MTR_SIZE_MAX,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.parts import record_parts
from binlogtool.formats.mariadb_innodb_binlog.redo.records import records_end
from binlogtool.limits import Limits


class Records(Construct):  # type: ignore[misc]
    """Construct of all records of one mini-transaction, up to its end byte, as their bytes; their parts can be
    traced.

    Args:
        encrypted: only the type and the length of a record are readable.
    """

    kernel = ScalarKernel(records_end)

    def __init__(self, encrypted: bool = False) -> None:
        super().__init__()
        self.encrypted = encrypted

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        start = stream.tell()
        data = stream.read(MTR_SIZE_MAX + 1)
        _, end = records_end(data, 0, len(data))
        stream.seek(start)
        if end < 0:
            why = "a record without a possible length" if end == -2 else "no end byte of the mini-transaction"
            raise MalformedError(why, path, "payload-undecodable" if end == -2 else "length-out-of-bounds")
        return bytes(stream_read(stream, end, path))

    def _build(self, obj: bytes, stream: Any, context: Any, path: str) -> bytes:
        stream_write(stream, obj, len(obj), path)
        return obj

    def trace_rows(self, data: bytes, start: int, end: int, limits: Limits) -> Iterator[Part]:
        """Trace the records by index, each with its parts."""
        return record_parts(data, start, end, self.encrypted)
