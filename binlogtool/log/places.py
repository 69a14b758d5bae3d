"""Positions: parsing of position texts, and the files of a log to which each applies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.limits import parse_size, shorten
from binlogtool.log.select import Selection

_NUMBERED_KINDS = ("record", "seq", "page")
_GTID = "gtid:"
_STOP_AT_START = "0"
"""The place to stop before for no record at all."""


class LogPosition(msgspec.Struct, frozen=True):
    """One parsed position: kind (offset, record or seq) and number; file restricts it to a member of a set."""

    kind: str
    value: int
    file: str | None = None


def parse_position(text: str, size: int | None, page_size: int | None = None) -> LogPosition:
    """Parse `1272`, `0x4f8`, `end-4KiB`, `record:N`, `page:N`, `seq:N` or `FILE:POS`; `gtid:…` is no single position.

    Args:
        size: bytes of the file, None for a stream.
        page_size: bytes of one of its pages; None = it has none.

    Raises:
        UsageError: the text is not a position, or counts from an end that is not known.
    """
    if is_gtid_position(text):
        raise UsageError(f"position {text!r}: a GTID can only start or stop a selection")
    file, position = split_file_prefix(text)
    kind, colon, number = position.partition(":")
    if not colon:
        return LogPosition("offset", _parse_offset(position, size), file)
    if kind != "page":
        return LogPosition(kind, _parse_number(number, text), file)
    if page_size is None:
        raise UsageError(f"position {text!r}: this file has no pages")
    return LogPosition("offset", _parse_number(number, text) * page_size, file)


def split_file_prefix(text: str) -> tuple[str | None, str]:
    """Split a position into the file that it names (None: it names none), and the position in it."""
    head, _, rest = text.rpartition(":")
    file, _, kind = head.rpartition(":")
    if kind in _NUMBERED_KINDS:
        return file or None, f"{kind}:{rest}"
    return head or None, rest


def is_gtid_position(position: str | None) -> bool:
    """Return True for a GTID position."""
    return position is not None and position.startswith(_GTID)


def is_sequence_position(position: str | None) -> bool:
    """Return True for a sequence number position."""
    return position is not None and not is_gtid_position(position) and split_file_prefix(position)[1].startswith("seq:")


def _parse_number(text: str, full_text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise UsageError(f"position {shorten(full_text)!r}: {shorten(text)!r} is not a number") from None
    if not 0 <= number < 1 << 64:
        raise UsageError(f"position {shorten(full_text)!r}: the number is not one of 64 bits")
    return number


def _parse_offset(text: str, size: int | None) -> int:
    if text != "end" and not text.startswith("end-"):
        return parse_size(text)
    if size is None:
        raise UsageError(f"position {text!r}: the end of a stream is not known")
    return max(0, size - parse_size(text[4:] or 0))


# -- several files -----------------------------------------------------------------------------------------------------


def _always(_number: int) -> bool:
    return True


def split_selection(
    selection: Selection, paths: Sequence[str], holds_records: Callable[[int], bool] = _always
) -> list[Selection]:
    """Return the part of a selection that applies to each file of a log; positions no longer name a file.

    A position without a file applies to the first file for `start` and to the last for `stop`, as in the servers' own
    tools; a sequence number or GTID applies to all. There are no entries for files after the stop position.

    Args:
        holds_records: can the file of this number hold records? The others are lists of files and the like.

    Raises:
        UsageError: a position names a file that does not exist (with `live`: it may appear), or could be several.
    """
    first = _find_file(selection.start, paths, holds_records, last=False)
    last = _find_file(selection.stop, paths, holds_records, last=True)
    if not selection.live:
        _require_file(selection.start, first)
        _require_file(selection.stop, last)
    end = len(paths) if last is None or last == _NO_SUCH_FILE else last + 1
    return [_limit_to_file(selection, path, number, first, last) for number, path in enumerate(paths[:end])]


_NO_SUCH_FILE = -1


def _find_file(
    text: str | None, paths: Sequence[str], holds_records: Callable[[int], bool], *, last: bool
) -> int | None:
    """Return the number of the only file to which a position applies; None = all; `_NO_SUCH_FILE` = none."""
    if text is None or is_gtid_position(text):
        return None
    name, position = split_file_prefix(text)
    step = -1 if last else 1
    if name is not None:
        return (_find_files_by_name(text, name, paths) or [_NO_SUCH_FILE])[::step][0]
    if position.startswith("seq:"):
        return None
    numbers = range(len(paths))[::step]
    return next((number for number in numbers if len(paths) == 1 or holds_records(number)), 0)


def _find_files_by_name(text: str, name: str, paths: Sequence[str]) -> list[int]:
    """Return the files with this path, else those with this name."""
    for names in (list(paths), [os.path.basename(path) for path in paths]):
        numbers = [number for number, one in enumerate(names) if one == name]
        if len({paths[number] for number in numbers}) > 1:
            raise UsageError(f"position {text!r}: several files have this name; write the path")
        if numbers:
            return numbers
    return []


def _require_file(text: str | None, file: int | None) -> None:
    if file == _NO_SUCH_FILE:
        raise UsageError(f"position {text!r}: no file of that name is in this log")


def _limit_to_file(selection: Selection, path: str, number: int, first: int | None, last: int | None) -> Selection:
    start = selection.start if first in (None, number) else None
    stop = selection.stop if last in (None, number) else None
    if first is not None and (number < first or first == _NO_SUCH_FILE):
        start, stop = None, _STOP_AT_START
    if path in selection.whole:
        stop = None
    return replace(selection, start=_strip_file(start), stop=_strip_file(stop))


def select_nothing(selection: Selection) -> Selection:
    """Return the selection for a file after the last one with selected records."""
    return replace(selection, start=None, stop=_STOP_AT_START)


def _strip_file(text: str | None) -> str | None:
    return text if text is None or is_gtid_position(text) else split_file_prefix(text)[1]
