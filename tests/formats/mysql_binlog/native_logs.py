"""What the tests of compiled lines share: small logs, written in both ways."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog.row_building import image, rows_body
from tests.report.native_lines import Dumped, same

WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2, UPDATE_V2, DELETE_V2 = 23, 24, 25, 30, 31, 32
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 13, 15, 16, 17, 18, 19
NEWDECIMAL, ENUM, SET, BLOB, STRING = 246, 247, 248, 252, 254

FILLER = 41
SPACE = make.event(make.XID, bytes(8)) * FILLER


def dumped(file: Path, *events: bytes, checksum: bool = True, **options: Any) -> Dumped:
    """The lines of these events. Before them stand others, since what follows closely on an event that is not written
    by compiled code (as the first one of a log) is not written by it either.
    """
    space = make.event(make.XID, bytes(8), checksum) * FILLER
    file.write_bytes(make.log([space, *events], checksum=checksum, **options))
    done = same(file)
    lines = done.text.splitlines(keepends=True)[1 + FILLER :]
    return Dumped(b"".join(lines), done.native - FILLER + 1, done.others - 2)


def rows_of(done: Dumped) -> list[Any]:
    """The rows of the last line."""
    return list(json.loads(done.text.splitlines()[-1])["body"]["rows"])


def one_column(file: Path, map_: bytes, values: Sequence[bytes | None]) -> int:
    """A log with each value in a statement of its own; how many values compiled code wrote."""
    table = make.event(make.TABLE_MAP, map_)
    rows = [make.event(WRITE_V1, rows_body(1, image([value]))) for value in values]
    done = dumped(file, *[table + row + SPACE for row in rows])
    return done.native - len(rows) * (1 + FILLER)
