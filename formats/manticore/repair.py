"""Repair rules of a binlog directory (`docs/spec/manticore.md#truncation`)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from binlogtool.format_api.format import EngineLock, FileFix, RepairRules
from binlogtool.format_api.layout import RangeReader
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import LOG_NAME, MAX_META_SIZE
from binlogtool.formats.manticore.payloads.kernels import build_zint

META_NAME = "binlog.meta"
_OLD_NUMBER_WIDTH = 3
_MAX_LISTED = 5
"""Most names of missing files that are listed."""
_MAGIC_META, _MAGIC_LOG = b"SPLI", b"SPBL"


def rebuild_meta(names: Sequence[str], read: Callable[[str], RangeReader]) -> Iterator[FileFix]:
    """Rebuild binlog.meta: without files that are missing; from the log files where it is missing or cannot be read."""
    logs = {int(match[1]): name for name in names if (match := LOG_NAME.fullmatch(name))}
    data = read(META_NAME)(0, MAX_META_SIZE + 1) if META_NAME in names else b""
    parsed = _parse_meta(data)
    if META_NAME not in names and not any(_has_records(name, read) for name in logs.values()):
        return
    if parsed is None and not logs:
        return
    if parsed is None:
        version = _get_common_version(logs, read)
        if version is not None and len(data) <= MAX_META_SIZE:
            content = _build_meta(version, _choose_setting(version, logs), sorted(logs))
            model_file = None if META_NAME in names else logs[max(logs)]
            yield FileFix(META_NAME, content, "rebuilt from the log files", model_file)
        return
    version, setting, numbers = parsed
    present = [number for number in numbers if number in logs]
    missing = [number for number in numbers if number not in logs]
    if missing:
        yield FileFix(
            META_NAME, _build_meta(version, setting, present), _describe_removal(version, setting, missing, numbers)
        )


def _describe_removal(version: int, setting: int, missing: Sequence[int], numbers: Sequence[int]) -> str:
    """Describe the consequences of removing files from the list."""
    digits = setting if version >= schema.NEW_FRAME_VERSION else _OLD_NUMBER_WIDTH
    names = ", ".join(f"binlog.{number:0{digits}d}" for number in missing[:_MAX_LISTED])
    names += f" and {len(missing) - _MAX_LISTED:,} more" if len(missing) > _MAX_LISTED else ""
    text = (
        f"without {len(missing)} listed {'file' if len(missing) == 1 else 'files'} that "
        f"{'is' if len(missing) == 1 else 'are'}"
    )
    text += (
        f" not there ({names}): the transactions in {'it' if len(missing) == 1 else 'them'} are given "
        f"up, those of every"
    )
    text += " table has saved them"
    is_newest = missing == [max(numbers)]
    return text + (
        "; it is the newest: if the server died before it created the file, there were none" if is_newest else ""
    )


def _has_records(name: str, read: Callable[[str], RangeReader]) -> bool:
    """Check that a log file has bytes after its head. Without a list, the server would overwrite it."""
    return len(read(name)(0, schema.HEADER_SIZE + 1)) > schema.HEADER_SIZE


def _parse_meta(data: bytes) -> tuple[int, int, list[int]] | None:
    """Parse version, digits and file numbers of a complete meta file; None if it is damaged."""
    if len(data) < 10 or len(data) > MAX_META_SIZE or not data.startswith(_MAGIC_META):
        return None
    version, setting = struct.unpack_from("<IB", data, 4)
    values, value, is_open = [], 0, False
    for byte in data[9:]:
        value, is_open = value << 7 | byte & 127, byte > 127
        if not is_open:
            values.append(value)
            value = 0
    is_complete = not is_open and bool(values) and values[0] == len(values) - 1
    is_supported = schema.FIRST_VERSION <= version <= schema.LAST_VERSION
    return (version, setting, values[1:]) if is_complete and is_supported else None


def _get_common_version(logs: dict[int, str], read: Callable[[str], RangeReader]) -> int | None:
    """Return the version that all log files state in their heads, or None."""
    heads = [head for name in logs.values() if len(head := read(name)(0, 8)) == 8]
    versions = {struct.unpack_from("<I", head, 4)[0] for head in heads if head.startswith(_MAGIC_LOG)}
    return versions.pop() if len(versions) == 1 and len(heads) > 0 else None


def _choose_setting(version: int, logs: dict[int, str]) -> int:
    """Return the digits of the file names from version 15 on; before, 1: ids have 64 bits."""
    return min(len(name.rpartition(".")[2]) for name in logs.values()) if version >= schema.NEW_FRAME_VERSION else 1


def _build_meta(version: int, setting: int, numbers: Sequence[int]) -> bytes:
    head = struct.pack("<4sIB", _MAGIC_META, version, setting)
    return head + b"".join(build_zint(number) for number in (len(numbers), *numbers))


REPAIR = RepairRules(
    locks=(EngineLock("binlog.lock", "record"),),
    fix_files=rebuild_meta,
    gaps="transactions may be missing in the middle: the server accepts that with the warning 'unexpected tid', but "
    "documents that the missing ones changed may be wrong",
)
