"""The binary log that MariaDB keeps inside InnoDB: the events of a server's log in pages, against that log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import binlogtool
from bench import mysql_log
from bench.cases import MIB, TOOL, Case, Figure, Result, Setting
from bench.measure import cpu_of_child, rounds
from binlogtool.format_api.layout import Batch
from binlogtool.formats.binlog_events.wire_format import CHECKSUM_SIZE, EVENT_SIZE_AT, TYPE_AT, EventType
from tests.export.ibb_writer import PAGE, IbbWriter


def ibb(setting: Setting) -> Result:
    """Events of small transactions as lines of JSON, whole processes: out of pages, and out of a binary log."""
    made = mysql_log.small(setting.directory, setting.size(96))
    folder = setting.directory / "ibb"
    in_pages(made.path, folder)
    words = [*TOOL, "dump", "-O", "jsonl"]
    seen = rounds(
        setting.rounds,
        pages=cpu_of_child([*words, "--level", "event", str(folder)]),
        events=cpu_of_child([*words, str(made.path)]),
    )
    title = f".ibb, {made.events:,} events"
    yield Figure(f"{title}: dump --level event -O jsonl", seen["pages"].inverse(made.events / 1e3), "k events/s")
    yield Figure(f"{title}: over dump of the same in a binary log", seen["events"].over(seen["pages"]), "x", 0.5)
    made.path.unlink()


def in_pages(path: Path, folder: Path) -> None:
    """The groups of a binary log as such files."""
    writer = IbbWriter(folder, pages=64 * MIB // PAGE)
    for number, events in enumerate(groups_of(events_of(path)), 1):
        writer.group((0, 1, number), events)
    writer.close()


def groups_of(events: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Each from a GTID on; what stands before the first one is no part of any."""
    group = list[bytes]()
    for event in events:
        if event[TYPE_AT] == EventType.GTID:
            if group:
                yield group
            group = [event]
        elif group:
            group.append(event)
    yield group


def events_of(path: Path) -> Iterator[bytes]:
    """Its events as they stand in pages: without checksums."""
    with binlogtool.open(path) as log:
        for file in log.files:
            for batch in log.make_scan(file).segments():
                if isinstance(batch, Batch):
                    yield from map(unchecked, map(batch.frame_bytes, range(batch.frames.count)))


def unchecked(event: bytes) -> bytes:
    """An event of which the checksum is cut off."""
    (size,) = struct.unpack_from("<I", event, EVENT_SIZE_AT)
    return (
        event[:EVENT_SIZE_AT]
        + struct.pack("<I", size - CHECKSUM_SIZE)
        + event[EVENT_SIZE_AT + 4 : size - CHECKSUM_SIZE]
    )


CASES: dict[str, Case] = {"ibb": ibb}
