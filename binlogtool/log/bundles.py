"""Event groups of a server's log, selected like records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from binlogtool.errors import UsageError
from binlogtool.findings import Finding
from binlogtool.formats.bundling import Bundle, Bundler, Reached
from binlogtool.formats.described import Described
from binlogtool.formats.layouts import Batch, RecordPlaces, Table
from binlogtool.limits import Limits
from binlogtool.log.filters import Filter
from binlogtool.log.records import Trouble
from binlogtool.log.scan import Scan
from binlogtool.log.segments import Damage

_NO_BYTES = memoryview(b"")


class Bundled(NamedTuple):
    """A part of a file; a finding stands for an incomplete transaction. selected: the selection includes it."""

    file: str
    part: Bundle | Reached | Finding
    wanted: bool = True


def bundled(path: str, scan: Scan, wanted: Filter, limits: Limits) -> Iterator[Bundled | Trouble]:
    """Yield the event groups of one file, up to the last selected one.

    Raises:
        UsageError: files of this format, or of this kind, have none.
    """
    if scan.format.reading.bundles is None:
        raise UsageError(f"{path}: the records of {scan.format.name} are no events of a server's binary log")
    bundler = scan.format.reading.bundles(scan.layout, limits)
    for segment in scan.segments():
        parts: Iterator[Bundle | Reached | Finding]
        if isinstance(segment, Damage):
            yield from (Trouble(path, found) for found in segment.findings)
            parts = _damaged(bundler, segment)
        else:
            parts = bundler.of(segment)
        yield from _chosen(path, parts, wanted)
        if wanted.done:
            return
    yield from _chosen(path, bundler.finish(), wanted)


def _damaged(bundler: Bundler, segment: Damage) -> Iterator[Bundle | Reached | Finding]:
    if segment.tail == "damaged":
        yield from bundler.damage(segment.start, segment.end)


def _chosen(path: str, parts: Iterator[Bundle | Reached | Finding], wanted: Filter) -> Iterator[Bundled]:
    for part in parts:
        yield Bundled(path, part, not isinstance(part, Bundle) or _wants(wanted, part))


def _wants(wanted: Filter, part: Bundle) -> bool:
    """Apply the selection to an event group as if it were a record; a FORMAT_DESCRIPTION is always selected."""
    if part.type == "FORMAT_DESCRIPTION":
        return True
    envelope = Described([part.type], [part.seq], [part.time], [None], [part.origin], [part.txn])
    places = RecordPlaces([part.offset], [part.size])
    place = Batch(0, _NO_BYTES, Table(1, {}), _NO_BYTES, None, (), (), part.record, 0, places=places)
    return any(True for _ in wanted.runs(place, 0, 1, envelope))
