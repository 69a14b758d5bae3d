"""Makes files by independent means: the msgpack library, crcmod and zstandard, never the code under test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import crcmod
import msgpack
import zstandard

import binlogtool
from binlogtool.verification.verify_logs import LogVerifyOptions
from binlogtool.verification.verify_report import FileReport
from tests.verify_bytes import verify_bytes

checksum = crcmod.mkCrcFun(0x11EDC6F41, initCrc=0, rev=True, xorOut=0)
END = bytes.fromhex("d510aded")
INSTANCE = "5ecb479f-a361-4dcf-836b-59b9375bab5f"
TIME = 1795232544.8979197


def row(header: dict[int, Any], body: dict[int, Any] | None = None) -> bytes:
    """One row from its two maps."""
    return msgpack.packb(header) + (b"" if body is None else msgpack.packb(body))


def dml(lsn: int, *, replica: int = 1, tsn: int | None = None, commit: bool = False, **more: Any) -> bytes:
    """A REPLACE into space `space` (512)."""
    header: dict[int, Any] = {0: more.get("type", 3)}
    if replica:
        header[2] = replica
    header |= {3: lsn, 4: more.get("time", TIME)}
    if tsn is not None:
        header[8] = (lsn - tsn) % 2**64
        if commit:
            header[9] = 1
    return row(header, {0x10: more.get("space", 512), 0x21: more.get("tuple", [lsn, "text"])})


def block(payload: bytes, *, zstd: bool = False, crc: int | None = None, filler: bytes | None = None) -> bytes:
    """A block around rows."""
    if zstd:
        packer = zstandard.ZstdCompressor(level=3).compressobj()
        payload = packer.compress(payload) + packer.flush()
    numbers = [len(payload), 0, checksum(payload) if crc is None else crc]
    head = bytes.fromhex("d5ba0bba" if zstd else "d5ba0bab") + b"".join(map(msgpack.packb, numbers))
    left = 19 - len(head)
    return head + (bytes([0xA0 + left - 1]) + bytes(left - 1) if filler is None else filler) + payload


def header(kind: str = "XLOG", vclock: str | None = "{}", previous: str | None = None, version: str = "0.13") -> bytes:
    """A text header."""
    lines = [kind, version, "Version: 2.6.0-0-g47aa4e01e", f"Instance: {INSTANCE}"]
    if vclock is not None:
        lines.append(f"VClock: {vclock}")
    if previous is not None:
        lines.append(f"PrevVClock: {previous}")
    return ("\n".join(lines) + "\n\n").encode()


def log(blocks: Iterable[bytes], *, vclock: str = "{}", end: bytes = END, kind: str = "XLOG") -> bytes:
    """A whole file."""
    return header(kind, vclock) + b"".join(blocks) + end


def verify(data: bytes, name: str = "00000000000000000000.xlog", backend: str = "python") -> FileReport:
    """The report of one file in memory."""
    options = LogVerifyOptions("set", binlogtool.Limits(), backend)
    return verify_bytes(name, data, format="tarantool", options=options)


def records(path: Any, data: bytes, **options: Any) -> list[Any]:
    """The records of a file that is written to `path` first."""
    path.write_bytes(data)
    with binlogtool.open(path, **options) as opened:
        return list(opened.records())
