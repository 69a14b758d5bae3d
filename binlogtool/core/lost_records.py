"""List the transactions and sequence numbers lost to damage or to a torn end, derived from the records before and after
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core.open_log import LogReader, open_log
from binlogtool.core.record_and_selection_types import ReadOptions, RecordBlock, Selection
from binlogtool.findings import Finding
from binlogtool.format_api.format import Format

MAX_LISTED_NUMBERS = 1000
"""A gap of more numbers than this at damage says more about the numbering than about the loss; it is not named."""


_LOCAL = "local "
"""Source of the numbers of records without an origin."""


class LostRange(msgspec.Struct, frozen=True):
    """Bytes of a file whose records are lost, and their names.

    Attributes:
        numbers: (source, first, last): lost numbers; the source is the GTID up to the number, or the replica.
        cut: The transaction that the range cuts; its other records are in the file, but do not take effect.
        may_be_cut: A transaction that may have ended before the range; its records do not prove it.
        last: The last name before the range; None = no record with a name is before it.
        is_end: The range is the torn end of the file.
        unit: What `cut`, `last` and the numbers are: transaction, LSN, TID.
    """

    file: str
    offset: int
    length: int
    unit: str
    numbers: tuple[tuple[str, int, int], ...] = ()
    cut: str | None = None
    may_be_cut: str | None = None
    last: str | None = None
    is_end: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the transactions that are certainly lost, for example 1-2-7, or 1-2-7 to 1-2-9."""
        spans = tuple(
            f"{source}{first}" if first == last else f"{source}{first} to {source}{last}"
            for source, first, last in self.numbers
        )
        return (*(() if self.cut is None else (self.cut,)), *spans)

    def to_json_value(self) -> dict[str, object]:
        """Return the JSON value."""
        members = {"unit": self.unit, "names": list(self.names), "may_be_cut": self.may_be_cut, "after": self.last}
        return {"file": self.file, "offset": self.offset, "length": self.length, **members}


class _NumberedRecord(msgspec.Struct, frozen=True):
    """One record with a name: its source, its number, and what decides whether its transaction is over."""

    source: str
    number: int
    type: str
    offset: int

    @property
    def name(self) -> str:
        return f"{self.source}{self.number}"


class _DamageWithNeighbours(msgspec.Struct):
    """One damaged range while the records after it are read.

    Attributes:
        before: source -> last record before the range. last: the last record with a name.
        after: source -> number of the first record after the range.
        has_rest: records without a name, which belong to a transaction that began before or in the range, follow it.
    """

    finding: Finding
    before: dict[str, _NumberedRecord]
    last: _NumberedRecord | None
    after: dict[str, int] = msgspec.field(default_factory=dict)
    has_rest: bool = False


def find_lost_ranges(
    path: str, format: str, findings: Iterable[Finding], read_options: ReadOptions
) -> tuple[LostRange, ...]:
    """Find the transactions or numbers that the damaged ranges and the torn end of one file lost.

    Args:
        findings: The findings of `verify` about the file.

    Raises:
        BinlogtoolError: the file cannot be read.
    """
    damaged = sorted((one for one in findings if _is_damage(one)), key=lambda one: one.offset or 0)
    format_ = formats.load_format(format)
    if not damaged or not format_.output.sequence_name:
        return ()
    with open_log(path, replace(read_options, format=format), LogReader) as log:
        ranges, uneven = _find_records_around_damage(log, format_, damaged)
        return tuple(_make_lost_range(path, format_, log, one, uneven) for one in ranges)


def _is_damage(finding: Finding) -> bool:
    return finding.id in ("damaged-range", "torn-tail") and finding.offset is not None and finding.length > 0


def _find_records_around_damage(
    log: LogReader, format_: Format, damage_findings: Sequence[Finding]
) -> tuple[list[_DamageWithNeighbours], set[str]]:
    """Find the records around each damaged range.

    Returns:
        The ranges, and the sources whose numbers have gaps where nothing is damaged.
    """
    latest: dict[str, _NumberedRecord] = {}
    last: _NumberedRecord | None = None
    ranges: list[_DamageWithNeighbours] = []
    uneven: set[str] = set()
    is_inside = False
    for block in log.blocks(Selection(on_damage="skip"), decode="header"):
        if not isinstance(block, RecordBlock):
            continue
        for mark, offset in _iter_numbered_records(block, format_):
            while len(ranges) < len(damage_findings) and offset >= (damage_findings[len(ranges)].offset or 0):
                ranges.append(_DamageWithNeighbours(damage_findings[len(ranges)], dict(latest), last))
                is_inside = True
            if mark is None:
                if is_inside and ranges:
                    ranges[-1].has_rest = True
                continue
            is_inside = False
            before = latest.get(mark.source)
            if ranges and mark.source not in ranges[-1].after:
                ranges[-1].after[mark.source] = mark.number
            elif before is not None and mark.number > before.number + 1:
                uneven.add(mark.source)
            latest[mark.source] = last = mark
    ranges += [_DamageWithNeighbours(one, dict(latest), last) for one in damage_findings[len(ranges) :]]
    return ranges, uneven


def _iter_numbered_records(block: RecordBlock, format_: Format) -> Iterator[tuple[_NumberedRecord | None, int]]:
    """Yield the mark and the offset of each record; the mark is None for a record without transaction or number."""
    by_transaction = format_.output.gtid_rules is not None
    envelope = block.envelope
    for index, offset in enumerate(block.offset):
        if by_transaction:
            yield _parse_numbered_record(envelope.txn[index], envelope.type[index], offset), offset
        elif number := envelope.seq[index]:  # 0: the record has no number of its own
            origin = envelope.origin[index]
            yield _NumberedRecord(f"{origin}:" if origin else _LOCAL, number, envelope.type[index], offset), offset


def _parse_numbered_record(text: object, type_: str, offset: int) -> _NumberedRecord | None:
    """Parse the text of a GTID, 0-1-42 or UUID:42; None if the text is none."""
    if not isinstance(text, str):
        return None
    separator = ":" if ":" in text else "-"
    source, _, number = text.rpartition(separator)
    return _NumberedRecord(source + separator, int(number), type_, offset) if source and number.isdigit() else None


def _make_lost_range(
    path: str, format_: Format, log: LogReader, damage: _DamageWithNeighbours, sources_with_gaps: set[str]
) -> LostRange:
    """Make the lost range of one damaged range: numbers missing between its neighbours, and the transaction that it
    cuts.
    """
    finding, last, unit = damage.finding, damage.last, format_.output.sequence_name
    sources = damage.before.keys() - {_LOCAL} or damage.before.keys()
    unique = next(iter(sources)) if len(sources) == 1 and format_.output.gtid_rules is None else None
    gaps = tuple(
        ("" if source == unique else source, before.number + 1, damage.after[source] - 1)
        for source, before in damage.before.items()
        if source not in sources_with_gaps and 1 < damage.after.get(source, 0) - before.number <= MAX_LISTED_NUMBERS
    )
    cut = may_be_cut = None
    if last is not None:
        ends = _is_last_of_transaction(format_, log, last)
        continues = damage.after.get(last.source) == last.number or (damage.has_rest and not gaps)
        if ends is False or (ends is None and continues):
            cut = last.name
        elif ends is None and damage.has_rest:
            may_be_cut = last.name
    last_name = None if last is None else str(last.number) if last.source == unique else last.name
    is_end = finding.id == "torn-tail"
    return LostRange(path, finding.offset or 0, finding.length, unit, gaps, cut, may_be_cut, last_name, is_end)


def _is_last_of_transaction(format_: Format, log: LogReader, mark: _NumberedRecord) -> bool | None:
    """Return whether a record is the last one of its transaction; None if the record alone does not tell."""
    rule = format_.output.is_transaction_end
    if rule is None:
        return True
    if (answer := rule(mark.type, None)) is not None:
        return answer
    for block in log.blocks(Selection(start=str(mark.offset), limit=1)):
        if isinstance(block, RecordBlock):
            return rule(mark.type, block.bodies[0])
    return None
