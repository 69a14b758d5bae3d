"""Positions: what a POS text says, and in which of a log's files it counts."""

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
    """One POS text: kind offset, record or seq, and its number; file restricts it to a member of a set."""

    kind: str
    value: int
    file: str | None = None


def parse_position(text: str, size: int | None, page: int | None = None) -> Position:
    """`1272`, `0x4f8`, `end-4KiB`, `record:N`, `page:N`, `seq:N`, `FILE:POS`; `gtid:…` is no single place.

    size: bytes of the file, None for a stream. page: bytes of one of its pages; None = it has none.

    Raises:
        UsageError: the text is no position, or counts from an end that is not known.
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
    """The file that a position names (None: it names none), and the place in it."""
    head, _, rest = text.rpartition(":")
    file, _, kind = head.rpartition(":")
    if kind in _COUNTED:
        return file or None, f"{kind}:{rest}"
    return head or None, rest


def by_gtid(position: str | None) -> bool:
    """Is it a place among the transactions?"""
    return position is not None and position.startswith(_GTID)


def by_sequence(position: str | None) -> bool:
    """Is it a sequence number?"""
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
    """What a selection means in each file of a log; its positions name no file any more.

    A place that names no file counts in the first file for `start` and in the last for `stop`, as the servers' own
    tools have it; a sequence number or GTID counts in all. Behind the file where it stops there are no shares.
    holds: can the file of this number hold records? The others are lists of files and the like.

    Raises:
        UsageError: a position names a file that is not there (with `live`: it may come yet), or could be several.
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
    """The number of the one file in which a place counts; None = in all; `_ABSENT` = it is not there."""
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
    """The files with this path, else with this name."""
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
    """The share of a file that lies behind the last one with selected records."""
    return replace(selection, start=None, stop=_NOTHING)


def _bare(text: str | None) -> str | None:
    return text if text is None or by_gtid(text) else named(text)[1]
