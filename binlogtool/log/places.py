"""Positions: parsing of position texts, and the files of a log to which each applies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.limits import parse_size, shortened
from binlogtool.log.select import Selection

_COUNTED = ("record", "seq", "page")
_GTID = "gtid:"
_NOTHING = "0"
"""The place to stop before for no record at all."""


class Position(msgspec.Struct, frozen=True):
    """One parsed position: kind (offset, record or seq) and number; file restricts it to a member of a set."""

    kind: str
    value: int
    file: str | None = None


def parse_position(text: str, size: int | None, page: int | None = None) -> Position:
    """Parse `1272`, `0x4f8`, `end-4KiB`, `record:N`, `page:N`, `seq:N` or `FILE:POS`; `gtid:…` is no single position.

    Args:
        size: bytes of the file, None for a stream.
        page: bytes of one of its pages; None = it has none.

    Raises:
        UsageError: the text is not a position, or counts from an end that is not known.
    """
    if by_gtid(text):
        raise UsageError(f"position {text!r}: a GTID can only start or stop a selection")
    file, place = named(text)
    kind, colon, number = place.partition(":")
    if not colon:
        return Position("offset", _offset(place, size), file)
    if kind != "page":
        return Position(kind, _number(number, text), file)
    if page is None:
        raise UsageError(f"position {text!r}: this file has no pages")
    return Position("offset", _number(number, text) * page, file)


def named(text: str) -> tuple[str | None, str]:
    """Split a position into the file that it names (None: it names none), and the position in it."""
    head, _, rest = text.rpartition(":")
    file, _, kind = head.rpartition(":")
    if kind in _COUNTED:
        return file or None, f"{kind}:{rest}"
    return head or None, rest


def by_gtid(position: str | None) -> bool:
    """Return True for a GTID position."""
    return position is not None and position.startswith(_GTID)


def by_sequence(position: str | None) -> bool:
    """Return True for a sequence number position."""
    return position is not None and not by_gtid(position) and named(position)[1].startswith("seq:")


def _number(text: str, whole: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise UsageError(f"position {shortened(whole)!r}: {shortened(text)!r} is not a number") from None
    if not 0 <= number < 1 << 64:
        raise UsageError(f"position {shortened(whole)!r}: the number is not one of 64 bits")
    return number


def _offset(text: str, size: int | None) -> int:
    if text != "end" and not text.startswith("end-"):
        return parse_size(text)
    if size is None:
        raise UsageError(f"position {text!r}: the end of a stream is not known")
    return max(0, size - parse_size(text[4:] or 0))


# -- several files -----------------------------------------------------------------------------------------------------


def _yes(_number: int) -> bool:
    return True


def shares(selection: Selection, paths: Sequence[str], holds: Callable[[int], bool] = _yes) -> list[Selection]:
    """Return the part of a selection that applies to each file of a log; positions no longer name a file.

    A position without a file applies to the first file for `start` and to the last for `stop`, as in the servers' own
    tools; a sequence number or GTID applies to all. There are no entries for files after the stop position.

    Args:
        holds: can the file of this number hold records? The others are lists of files and the like.

    Raises:
        UsageError: a position names a file that does not exist (with `live`: it may appear), or could be several.
    """
    first = _file_of(selection.start, paths, holds, last=False)
    last = _file_of(selection.stop, paths, holds, last=True)
    if not selection.live:
        _demand(selection.start, first)
        _demand(selection.stop, last)
    end = len(paths) if last is None or last == _ABSENT else last + 1
    return [_share(selection, path, number, first, last) for number, path in enumerate(paths[:end])]


_ABSENT = -1


def _file_of(text: str | None, paths: Sequence[str], holds: Callable[[int], bool], *, last: bool) -> int | None:
    """Return the number of the only file to which a position applies; None = all; `_NO_SUCH_FILE` = none."""
    if text is None or by_gtid(text):
        return None
    name, place = named(text)
    step = -1 if last else 1
    if name is not None:
        return (_matching(text, name, paths) or [_ABSENT])[::step][0]
    if place.startswith("seq:"):
        return None
    numbers = range(len(paths))[::step]
    return next((number for number in numbers if len(paths) == 1 or holds(number)), 0)


def _matching(text: str, name: str, paths: Sequence[str]) -> list[int]:
    """Return the files with this path, else those with this name."""
    for seen in (list(paths), [os.path.basename(path) for path in paths]):
        found = [number for number, one in enumerate(seen) if one == name]
        if len({paths[number] for number in found}) > 1:
            raise UsageError(f"position {text!r}: several files have this name; write the path")
        if found:
            return found
    return []


def _demand(text: str | None, file: int | None) -> None:
    if file == _ABSENT:
        raise UsageError(f"position {text!r}: no file of that name is in this log")


def _share(selection: Selection, path: str, number: int, first: int | None, last: int | None) -> Selection:
    start = selection.start if first in (None, number) else None
    stop = selection.stop if last in (None, number) else None
    if first is not None and (number < first or first == _ABSENT):
        start, stop = None, _NOTHING
    if path in selection.whole:
        stop = None
    return replace(selection, start=_bare(start), stop=_bare(stop))


def nothing_of(selection: Selection) -> Selection:
    """Return the selection for a file after the last one with selected records."""
    return replace(selection, start=None, stop=_NOTHING)


def _bare(text: str | None) -> str | None:
    return text if text is None or by_gtid(text) else named(text)[1]
