"""Help for the tests of the judge: logs cut into events, put together again, and judged."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from binlogtool.findings import Finding, Severity
from binlogtool.verification.verify_logs import LogVerifyOptions
from binlogtool.verification.verify_report import FileReport
from tests.verify_bytes import verify_bytes

HEADER = struct.Struct("<IBIIIH")
GTID, XID, TABLE_MAP, QUERY, DESCRIPTION = 162, 16, 19, 2, 15
MYSQL_GTID = 33


@dataclass(frozen=True)
class Raw:
    """An event as bytes, without its checksum."""

    time: int
    code: int
    server: int
    flags: int
    position: int
    body: bytes

    @classmethod
    def of(cls, data: bytes, checksum: bool) -> Raw:
        time, code, server, _, position, flags = HEADER.unpack_from(data)
        return cls(time, code, server, flags, position, data[HEADER.size : len(data) - 4 * checksum])

    def bytes(self, start: int, checksum: bool, chained: bool = True) -> bytes:
        """The event at this offset; its position is right, unless it was 0 or `chained` is false."""
        size = HEADER.size + len(self.body) + 4 * checksum
        position = start + size if chained and self.position else self.position
        data = HEADER.pack(self.time, self.code, self.server, size, position, self.flags) + self.body
        covered = data[:17] + bytes([data[17] & 0xFE]) + data[18:] if self.code == DESCRIPTION else data
        return data + zlib.crc32(covered).to_bytes(4, "little") if checksum else data


def events_of(data: bytes) -> list[Raw]:
    """The events of a log whose events all end with a checksum."""
    found, at = [], 4
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 9)[0]
        found.append(Raw.of(data[at : at + size], True))
        at += size
    return found


def log_of(events: list[Raw], chained: bool = True) -> bytes:
    """A log of these events, with right checksums; positions are right where `chained`."""
    data = b"\xfebin"
    for one in events:
        data += one.bytes(len(data), True, chained)
    return data


def starts_of(data: bytes) -> list[int]:
    """Where the events of a whole log start, and its end."""
    starts, at = [], 4
    while at < len(data):
        starts.append(at)
        at += struct.unpack_from("<I", data, at + 9)[0]
    return [*starts, at]


def judged(data: bytes, backend: str = "python") -> FileReport:
    """The verdict about a log."""
    return verify_bytes("binlog.000001", data, format="mysql-binlog", options=LogVerifyOptions(backend=backend))


@lru_cache(maxsize=256)
def judged_file(path: Path, backend: str = "python") -> FileReport:
    """The verdict about a file."""
    return verify_bytes(path.name, path.read_bytes(), format="mysql-binlog", options=LogVerifyOptions(backend=backend))


def errors(report: FileReport) -> list[Finding]:
    return [one for one in report.findings if one.severity is Severity.ERROR]


def ids(report: FileReport, severity: Severity = Severity.ERROR) -> list[str]:
    return [one.id for one in report.findings if one.severity is severity]


def diagnoses(report: FileReport, severity: Severity = Severity.ERROR) -> list[str]:
    return [str(one.facts.get("diagnosis")) for one in report.findings if one.severity is severity]


def changed(events: list[Raw], index: int, **fields: object) -> list[Raw]:
    """The same events, one of them with other fields."""
    return [*events[:index], replace(events[index], **fields), *events[index + 1 :]]  # type: ignore[arg-type]


def first(events: list[Raw], code: int, after: int = 0) -> int:
    """The index of the first event of this type, behind `after`."""
    return next(i for i, one in enumerate(events) if one.code == code and i >= after)
