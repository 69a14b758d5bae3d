"""Reads what `mysqlbinlog -vvv --base64-output=decode-rows` and `mariadb-binlog` print, as an oracle for tests.

Everything is kept as the tool wrote it (bytes, not values): its text forms are ambiguous in the other direction.
"""

from __future__ import annotations

import gzip
import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

_POSITION = re.compile(rb"# at (\d+)")
_HEADER = re.compile(
    rb"#(\d{6} [ \d]\d:\d\d:\d\d) server id (\d+)  end_log_pos (\d+) (?:CRC32 0x([0-9a-f]{8}) )?\t(.*)", re.DOTALL
)
_SPLIT_HEADER = re.compile(rb"( end_log_pos \d+ (?:CRC32 0x[0-9a-f]{8} )?)\n#(?=Begin_load_query)")
_ROW = re.compile(rb"### (INSERT INTO|UPDATE|DELETE FROM) `((?:[^`]|``)*)`\.`((?:[^`]|``)*)`")
_CELL = re.compile(rb"###   @(\d+)=(.*) /\* (.*) meta=(\d+) nullable=([01]) is_null=([01]) \*/", re.DOTALL)
_FLAGS = re.compile(rb" flags: ((?:[A-Z_]+ ?)+)")
_GAVE_UP = re.compile(rb"###   (?:@\d+=)?!! (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cell:
    """One value: its text, and the type comment behind it ("VARSTRING(200) COMPRESSED")."""

    text: bytes
    type: str
    meta: int
    nullable: bool
    is_null: bool


@dataclass(slots=True)
class Row:
    """operation: INSERT INTO, UPDATE or DELETE FROM. before (WHERE) and after (SET): column number from 1 -> value.

    gave_up: why the tool left out the rest of this row and of its event; None = it did not.
    """

    operation: str
    database: str
    table: str
    before: dict[int, Cell] | None = None
    after: dict[int, Cell] | None = None
    gave_up: str | None = None


@dataclass(slots=True)
class Event:
    """position: the file offset of the event ("# at"); inside a payload, the end of the payload. time: as printed, in
    the tool's time zone. kind: the first words behind the tab ("Write_rows", "Query"). text: all of what is there.

    lines: what follows up to the next event. rows: the tool prints the rows of a statement after its last row event;
    they stand there, in order.
    """

    position: int
    time: str
    server_id: int
    end_log_pos: int
    checksum: int | None
    kind: str
    text: bytes
    flags: tuple[str, ...] = ()
    lines: list[bytes] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def read(path: Path) -> list[Event]:
    """The events of a `FILE.txt.gz`, or of a plain text file."""
    raw = path.read_bytes()
    return parse(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def parse(text: bytes) -> list[Event]:
    """The events in the order of the text."""
    events: list[Event] = []
    positions: deque[int] = deque()
    image: dict[int, Cell] | None = None
    for line in _SPLIT_HEADER.sub(rb"\1\t", text).split(b"\n"):
        if at := _POSITION.fullmatch(line):
            positions.append(int(at[1]))
        elif head := _HEADER.fullmatch(line):
            while len(positions) > 1 and positions[1] < int(head[3]):
                positions.popleft()  # an event that the tool does not print
            events.append(_event(head, positions.popleft() if positions else -1))
            image = None
        elif not events:
            continue
        elif row := _ROW.fullmatch(line):
            events[-1].rows.append(Row(row[1].decode(), _identifier(row[2]), _identifier(row[3])))
        elif line in (b"### WHERE", b"### SET") and events[-1].rows:
            image = {}
            setattr(events[-1].rows[-1], "before" if line == b"### WHERE" else "after", image)
        elif (cell := _CELL.fullmatch(line)) and image is not None:
            image[int(cell[1])] = Cell(cell[2], cell[3].decode(), int(cell[4]), cell[5] == b"1", cell[6] == b"1")
        elif (why := _GAVE_UP.fullmatch(line)) and events[-1].rows:
            events[-1].rows[-1].gave_up = why[1].decode()
        else:
            events[-1].lines.append(line)
    return events


def _event(head: re.Match[bytes], position: int) -> Event:
    text = head[5]
    flags = _FLAGS.search(text)
    return Event(
        position,
        head[1].decode(),
        int(head[2]),
        int(head[3]),
        int(head[4], 16) if head[4] else None,
        re.split(r"[:\t]|(?<=GTID) ", text.decode("utf-8", "backslashreplace"), maxsplit=1)[0].strip(),
        text,
        tuple(flags[1].decode().split()) if flags else (),
    )


def _identifier(quoted: bytes) -> str:
    return quoted.replace(b"``", b"`").decode()
