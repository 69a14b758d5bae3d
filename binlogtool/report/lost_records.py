"""Describe in text what damage and torn ends of files took."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from binlogtool.core.lost_records import LostRange, find_lost_ranges
from binlogtool.core.open_file import is_url
from binlogtool.core.record_selection import ReadOptions
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import make_finding
from binlogtool.report.wording import format_offset, format_quantity
from binlogtool.terminal.escape import escape

if TYPE_CHECKING:
    from binlogtool.export.manifest import Manifest


def describe_lost_ranges(lost_ranges: Sequence[LostRange]) -> Iterator[str]:
    """Yield a line about each range that damage or a torn end took."""
    for lost in lost_ranges:
        place = f"{escape(os.path.basename(lost.file))} {format_offset(lost.offset)}"
        size = format_quantity(lost.length, "byte")
        after = "" if lost.last is None else f" after {lost.unit} {escape(lost.last)}"
        may_be_cut = "" if lost.may_be_cut is None else f"; perhaps the end of {lost.unit} {escape(lost.may_be_cut)}"
        if lost.names:
            end = " at the end" if lost.is_end else ""
            yield f"{place}: {format_lost_names(lost)} ({size}{end} that cannot be read){may_be_cut}"
        else:
            yield f"{place}: {size} that cannot be read{after}{may_be_cut}"


def format_lost_names(lost: LostRange) -> str:
    """Return what a range lost, with its unit: LSN 23, transaction 1-2-7."""
    return f"{lost.unit} {escape(', '.join(lost.names))}"


def name_lost_records(manifest: Manifest, found: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """Return (file, offset) -> text with the transactions or numbers that damaged ranges of the input took.

    Args:
        found: Findings of the manifest about damaged ranges.
    """
    names: dict[tuple[str, int], str] = {}
    formats = {one.path: one.format for one in manifest.inputs if one.format}
    for path in dict.fromkeys(one["file"] for one in found):
        ranges = [make_finding("damaged-range", f["offset"], f["length"], "") for f in found if f["file"] == path]
        if path == "-" or is_url(path) or path not in formats:
            continue
        with suppress(BinlogtoolError):
            for lost in find_lost_ranges(path, formats[path], ranges, ReadOptions()):
                if lost.names:
                    names[path, lost.offset] = f", {format_lost_names(lost)}"
    return names
