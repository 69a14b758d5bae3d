"""Logs made by hand from the specification: plain struct, nothing of the code under test."""

from __future__ import annotations

import hashlib
import struct

from binlogtool.core.open_file import BytesSource, open_file
from binlogtool.formats.eblob.format import FORMAT
from binlogtool.limits import Limits
from binlogtool.verification.verify_logs import LogVerifyOptions, verify_file
from binlogtool.verification.verify_report import FileReport

NAME = "data-0.0.binlog"


def header(flags: int = 4, magic: bytes = b"1337833\0", version: int = 1) -> bytes:
    return magic + struct.pack("<H6xQ232x", version, flags)


def key(number: int) -> bytes:
    return hashlib.sha512(b"key %d" % number).digest()


def record(of: bytes, meta: bytes, data: bytes, kind: int = 1, flags: int = 0, order: str = "<") -> bytes:
    return struct.pack(f"{order}4Q", kind, len(meta), len(data), flags) + of + bytes(32) + meta + data


def write(of: bytes, target: int, data: bytes) -> bytes:
    return record(of, struct.pack("<Q", target), data)


def control(of: bytes, flags: int, data_size: int, disk_size: int, position: int) -> bytes:
    return of + struct.pack("<4Q", flags, data_size, disk_size, position)


def overwrite(
    number: int, data: bytes, start: int = 5000, slack: int = 40, *, footer: bool = True, **wrong: int
) -> bytes:
    """The records of one whole overwrite. wrong: members of the control block that are to be other than right."""
    of, size = key(number), 96 + len(data) + slack + (72 if footer else 0)
    block = {"flags": 0, "data_size": len(data), "disk_size": size, "position": start} | wrong
    foot = hashlib.sha512(data).digest() + struct.pack("<Q", start)
    middle = write(of, start + size - 72, foot) if footer else b""
    return write(of, start + 96, data) + middle + write(of, start, control(of, **block))


def remove(number: int, start: int = 9000) -> bytes:
    return write(key(number), start + 64, struct.pack("<Q", 1))


def total(of: bytes, meta: bytes, data: bytes, kind: int) -> bytes:
    """A record of dialect a."""
    return struct.pack("<4Q", kind, len(meta) + len(data), len(meta), 0) + of + bytes(32) + meta + data


def verified(data: bytes, name: str = NAME, backend: str = "python", depth: str = "set") -> FileReport:
    """The report about bytes as a file of this name."""
    file = open_file(name, name, FORMAT, Limits(), BytesSource(name, data))
    return verify_file(file, LogVerifyOptions(depth, backend=backend)).report


def noticed(report: FileReport) -> list[tuple[str, int | None, str]]:
    """Id, offset and diagnosis of every finding beside the one that says that there is no checksum."""
    return [(f.id, f.offset, f.facts.get("diagnosis", "")) for f in report.findings if f.id != "checksum-absent"]
