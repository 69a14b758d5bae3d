"""Walks intact logs for tests: header, body without checksum, by nothing but lengths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from binlogtool.formats.binlog_events.wire_format import FormatDescription, parse_format_description

ODD = frozenset(
    {
        "mdev-4645-binlog_group_id.binlog",  # headers of 27 and 31 bytes: a private fork of MySQL 5.1
        "mdev-4645-binlog_group_id_checksum.binlog",
        "ver_5_1-wl2325_r.001",  # event types numbered otherwise: a development version of MySQL 5.1
        "binlog_before_20574.bin",  # encrypted
        "corrupt-relay-bin.000624",  # damaged on purpose
        "binlog_no_fd_event.000001",
        "binlog_truncated_event.000001",
        "binlog_truncated_prev_gtid_event.000001",
    }
)
"""Third-party samples whose bodies cannot be read as they stand."""


class Event(NamedTuple):
    """One event: its offset, and its body without header and checksum (None where none is declared)."""

    at: int
    type: int
    server_id: int
    body: bytes
    end_log_pos: int
    checksum: int | None


def logs(corpus: Path) -> list[Path]:
    """All plain logs that are not damaged."""
    found = (path for path in sorted((corpus / "mysql-binlog").rglob("*")) if path.is_file())
    return [path for path in found if _is_plain(path.relative_to(corpus).as_posix(), path)]


def _is_plain(name: str, path: Path) -> bool:
    if "/damaged/" in name or "/encrypted/" in name or path.name in ODD or path.suffix == ".gz":
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\xfebin"


def events(data: bytes) -> Iterator[Event]:
    """The whole events of a log, up to a torn end."""
    at, tail = 4, 0
    while at + 19 <= len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if size < 19 or at + size > len(data):
            return
        own = tail
        if data[at + 4] == 15:
            description: FormatDescription = parse_format_description(data[at : at + size])
            tail = 4 if description.has_checksums else 0
            own = 0 if description.checksum_alg is None else 4
        server, end_log_pos = (int.from_bytes(data[i : i + 4], "little") for i in (at + 5, at + 13))
        body_end = at + size - own
        checksum = int.from_bytes(data[body_end : body_end + 4], "little") if tail else None
        yield Event(at, data[at + 4], server, data[at + 19 : body_end], end_log_pos, checksum)
        at += size
