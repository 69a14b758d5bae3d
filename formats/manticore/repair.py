"""Repair rules of a binlog directory (`docs/spec/manticore-binlog.md#122-truncate-to-durable`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from binlogtool.formats.layouts import Read
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import LOG_NAME, MAX_META
from binlogtool.formats.manticore.payloads.zint import build_zint
from binlogtool.formats.repair_rules import EngineLock, Mended, Repair

META = "binlog.meta"
_OLD_DIGITS = 3
_TOLD = 5
"""Names of missing files that are said."""
_MAGIC_META, _MAGIC_LOG = b"SPLI", b"SPBL"


def mend(names: Sequence[str], read: Callable[[str], Read]) -> Iterator[Mended]:
    """Rebuild binlog.meta: without files that are missing; from the log files where it is missing or cannot be read."""
    logs = {int(match[1]): name for name in names if (match := LOG_NAME.fullmatch(name))}
    data = read(META)(0, MAX_META + 1) if META in names else b""
    known = _parsed(data)
    if META not in names and not any(_filled(name, read) for name in logs.values()):
        return
    if known is None and not logs:
        return
    if known is None:
        version = _version(logs, read)
        if version is not None and len(data) <= MAX_META:
            content = _meta(version, _setting(version, logs), sorted(logs))
            like = None if META in names else logs[max(logs)]
            yield Mended(META, content, "made anew from the log files", like)
        return
    version, setting, numbers = known
    there = [number for number in numbers if number in logs]
    gone = [number for number in numbers if number not in logs]
    if gone:
        yield Mended(META, _meta(version, setting, there), _without(version, setting, gone, numbers))


def _without(version: int, setting: int, gone: Sequence[int], numbers: Sequence[int]) -> str:
    """Describe the consequences of removing files from the list."""
    digits = setting if version >= schema.NEW_FRAME else _OLD_DIGITS
    names = ", ".join(f"binlog.{number:0{digits}d}" for number in gone[:_TOLD])
    names += f" and {len(gone) - _TOLD:,} more" if len(gone) > _TOLD else ""
    text = (
        f"without {len(gone)} listed {'file' if len(gone) == 1 else 'files'} that {'is' if len(gone) == 1 else 'are'}"
    )
    text += (
        f" not there ({names}): the transactions in {'it' if len(gone) == 1 else 'them'} are given up, those of every"
    )
    text += " table that were not saved in it"
    newest = gone == [max(numbers)]
    return text + ("; it is the newest: if the server died before it made the file, there were none" if newest else "")


def _filled(name: str, read: Callable[[str], Read]) -> bool:
    """Check that a log file has bytes after its head. Without a list, the server would overwrite it."""
    return len(read(name)(0, schema.HEADER_SIZE + 1)) > schema.HEADER_SIZE


def _parsed(data: bytes) -> tuple[int, int, list[int]] | None:
    """Parse version, digits and file numbers of a complete meta file; None if it is damaged."""
    if len(data) < 10 or len(data) > MAX_META or not data.startswith(_MAGIC_META):
        return None
    version, setting = struct.unpack_from("<IB", data, 4)
    values, value, open_ = [], 0, False
    for byte in data[9:]:
        value, open_ = value << 7 | byte & 127, byte > 127
        if not open_:
            values.append(value)
            value = 0
    whole = not open_ and bool(values) and values[0] == len(values) - 1
    supported = schema.FIRST_VERSION <= version <= schema.LAST_VERSION
    return (version, setting, values[1:]) if whole and supported else None


def _version(logs: dict[int, str], read: Callable[[str], Read]) -> int | None:
    """Return the version that all log files state in their heads, or None."""
    heads = [head for name in logs.values() if len(head := read(name)(0, 8)) == 8]
    versions = {struct.unpack_from("<I", head, 4)[0] for head in heads if head.startswith(_MAGIC_LOG)}
    return versions.pop() if len(versions) == 1 and len(heads) > 0 else None


def _setting(version: int, logs: dict[int, str]) -> int:
    """Return the digits of the file names from version 15 on; before, 1: ids have 64 bits."""
    return min(len(name.rpartition(".")[2]) for name in logs.values()) if version >= schema.NEW_FRAME else 1


def _meta(version: int, setting: int, numbers: Sequence[int]) -> bytes:
    head = struct.pack("<4sIB", _MAGIC_META, version, setting)
    return head + b"".join(build_zint(number) for number in (len(numbers), *numbers))


REPAIR = Repair(
    locks=(EngineLock("binlog.lock", "record"),),
    mend=mend,
    gaps="transactions may be missing in the middle: the server takes that with the warning 'unexpected tid', but "
    "documents that the missing ones changed may be wrong",
)
