"""Check, while a log set is read, that no file is missing or out of order.

A link that the end of the first file proves costs one small read. Any other link is decided by the format's rules for
sets, as `verify` applies them, so both files are validated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec

from binlogtool.core.notify_progress_listener import strip_compressed_suffix
from binlogtool.core.open_file import LogFile, is_stream_path, is_url
from binlogtool.core.record_and_selection_types import FileFinding, Selection, is_empty_selection
from binlogtool.core.record_filter import RecordFilter
from binlogtool.core.scan_file import DamagedRange, Scan
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import FileLink, SetMember
from binlogtool.format_api.layout import Batch
from binlogtool.limits import Limits

_END_BYTES = 1024
"""Number of bytes at the end of a file that can prove which file follows."""
_MAX_CHAIN = 3
"""Maximum number of preceding files that are checked against one file, to bound the work."""
_TIMED_RECORDS = 64
"""Number of records at the start and at the end of a file whose times are read."""
_MAX_CHECKED_GTIDS = 100_000
"""Maximum number of lost transactions that are compared with the selection one by one; more count as selected."""
_MAX_LISTED_RANGES = 100
"""Minimum number of ranges at which a finding may omit some of them."""


class LinkedFile(msgspec.Struct, frozen=True):
    """A validated file of a log. first_time, last_time: times of its records, in microseconds; None = unknown."""

    member: SetMember
    first_time: int | None
    last_time: int | None


class BrokenLink(msgspec.Struct, frozen=True):
    """Description of what is wrong between two files.

    Args:
        file: the file that the finding is about if it is one of both, otherwise the second.
        is_wrong_order: the files are in the wrong order; otherwise records are missing between them.
        gtids: the missing transactions, where they are known.
        after, before: times between which the missing records were written.
    """

    file: str
    finding: Finding
    is_wrong_order: bool
    gtids: Sequence[str] | None = None
    after: int | None = None
    before: int | None = None

    def can_concern_selection(self, record_filter: RecordFilter) -> bool:
        """Return whether the missing records may belong to the selection."""
        s = record_filter.selection
        if s.stop_time is not None and self.after is not None and self.after >= s.stop_time:
            return False
        if s.start_time is not None and self.before is not None and self.before < s.start_time:
            return False
        if self.gtids is None:
            return True
        return any(all(matches(one) for matches in record_filter.transactions) for one in self.gtids)

    def is_concern_certain(self, record_filter: RecordFilter) -> bool:
        """Return whether `is_selected` is certain; otherwise there must be selected records on both sides."""
        return not self.is_wrong_order and (self.gtids is not None or not record_filter.transactions)


class LogSetContinuityChecker:
    """Check the links between the files of a log, in the order in which they are read."""

    def __init__(
        self, reopen_file: Callable[[LogFile], LogFile], make_scan: Callable[[LogFile], Scan], limits: Limits
    ) -> None:
        """Create a checker. reopen_file: opens a file once more."""
        self._reopen_file, self._make_scan, self._limits = reopen_file, make_scan, limits
        self._previous: LogFile | None = None
        self._before_path = ""
        self._chain: list[LinkedFile] = []
        self._reported: set[tuple[str, str]] = set()
        self._members: dict[tuple[str, str | None], dict[str, int]] = {}
        """(directory, name stem of a log) -> its files in log order, with their positions."""

    def find_broken_links_before(self, file: LogFile) -> list[BrokenLink]:
        """Return what is wrong between the last file with records and this one."""
        is_proven, before = file.format.validation.is_link_proven, self._previous
        if not file.layout.has_records or is_proven is None or not _is_local_file(file):
            return []
        self._previous, self._before_path = file, "" if before is None else before.path
        if before is None or before.format is not file.format:
            self._chain = []
            return []
        mixed = self._find_files_of_other_server(before, file)
        if mixed or not _is_same_log(before, file):
            self._chain = []
            return mixed
        first, second = _member_name(before.path), _member_name(file.path)
        try:
            if is_proven(FileLink(first, second, before.layout, file.layout, partial(self._read_last_bytes, before))):
                self._chain = []
                return []
            if list((file.format.files.sort_names or sorted)([second, first])) != [first, second]:
                self._chain = []
                text = f"{second} is older than {first}, but it is read after it; "
                text += "name the files in the order of the log"
                return [BrokenLink(file.path, make_finding("sequence-regression", None, 0, text), is_wrong_order=True)]
            self._chain = self._chain[-_MAX_CHAIN:] or [self._validate_file(before)]
            self._chain.append(self._validate_file(file))
        except BinlogtoolError:
            self._chain = []  # the reader of the records reports it
            return []
        return self._validate_links(before, file)

    def _find_files_of_other_server(self, before: LogFile, file: LogFile) -> list[BrokenLink]:
        """Return what says that two files of a folder are of two servers, once each."""
        folders = [os.path.dirname(os.path.abspath(one.path)) for one in (before, file)]
        validate_set = file.format.validation.validate_set
        if validate_set is None or folders[0] != folders[1]:
            return []
        members = [SetMember(_member_name(one.path), one.layout, None, None) for one in (before, file)]
        links = []
        for one in validate_set(members):
            key = (folders[0], one.finding.message)
            if one.finding.id == "extra-member" and key not in self._reported:
                self._reported.add(key)
                links.append(BrokenLink(file.path, one.finding, is_wrong_order=False))
        return links

    def _validate_links(self, before: LogFile, after: LogFile) -> list[BrokenLink]:
        """Apply the format's rules for sets to the files since the last proven link."""
        unnamed = self._list_unread_files_between(before, after)
        members = [*(one.member for one in self._chain), *(SetMember(one, None, None, None) for one in unnamed)]
        links = list(self._iter_broken(members, after))
        if unnamed and not links:
            listed = f"{unnamed[0]} and {len(unnamed) - 1:,} more exist" if unnamed[1:] else f"{unnamed[0]} exists"
            text = f"{listed} before this file and {'were' if unnamed[1:] else 'was'} not named, so not read"
            unread = make_finding("member-not-named", None, 0, text, severity=Severity.WARNING, files=unnamed)
            return [self._make_link(after.path, unread, is_wrong_order=False)]
        return links

    def _iter_broken(self, members: Sequence[SetMember], after: LogFile) -> Iterator[BrokenLink]:
        """Yield what the format's rules say about the links, once each."""
        validate_set, folder = after.format.validation.validate_set, os.path.dirname(after.path)
        for one in () if validate_set is None else validate_set(members):
            found, key = one.finding, (one.file, f"{one.finding.id} {one.finding.message}")
            is_hole = found.id == "gap-in-sequence" or (found.id == "missing-member" and "between" in found.facts)
            is_order = found.id == "sequence-regression" or not found.facts.keys().isdisjoint(
                ("exchanged_with", "rotates_to")
            )
            if found.severity is Severity.ERROR and (is_hole or is_order) and key not in self._reported:
                self._reported.add(key)
                yield self._make_link(os.path.join(folder, one.file), found, is_wrong_order=is_order)

    def _list_unread_files_between(self, before: LogFile, after: LogFile) -> list[str]:
        """Return the log files that exist between two files of a log and are not read; the directory is listed once."""
        names, files = [_member_name(before.path), _member_name(after.path)], after.format.files
        folder, stem = os.path.dirname(after.path), files.name_stem(names[0])
        positions = self._members.get((folder, stem), {})
        if not positions.keys() >= {*names}:
            try:
                entries = {_member_name(entry) for entry in os.listdir(folder or ".")}
            except OSError:
                return []
            members = {*names, *(one for one in entries if files.name_stem(one) == stem)}
            positions = {name: number for number, name in enumerate((files.sort_names or sorted)([*members]))}
            self._members[folder, stem] = positions
        same_length = {len(name) for name in names}
        between = islice(positions, positions[names[0]] + 1, positions[names[1]])
        return [name for name in between if len(name) in same_length]

    def _make_link(self, path: str, found: Finding, *, is_wrong_order: bool) -> BrokenLink:
        """Make a broken link with the missing GTIDs and the times on both sides."""
        before, after = self._chain[-2:]
        gtids = None if is_wrong_order else _list_missing_gtids(found)
        assert self._previous is not None
        path = path if path == self._before_path else self._previous.path
        return BrokenLink(path, found, is_wrong_order, gtids, before.last_time, after.first_time)

    def _validate_file(self, opened: LogFile) -> LinkedFile:
        file = self._reopen_file(opened)
        try:
            scan, first_time, last_time = self._make_scan(file), None, None
            validator = file.format.validation.validator(file.layout, scan.backend.compile_kernel, self._limits)
            for segment in scan.segments():
                batch = segment.good_records if isinstance(segment, DamagedRange) else segment
                if isinstance(segment, DamagedRange):
                    validator.skip_damage(segment.start, segment.end)
                if batch is not None and batch.records.count:
                    validator.validate_batch(batch)
                    first_time = first_time or min(_read_times(file, batch, at_end=False), default=None)
                    last_time = max(_read_times(file, batch, at_end=True), default=last_time)
            verdict = validator.finish(scan.file_tail())
            member = SetMember(_member_name(file.path), file.layout, verdict, scan.file_tail())
            return LinkedFile(member, first_time, last_time)
        finally:
            file.source.close()

    def _read_last_bytes(self, opened: LogFile) -> bytes:
        """Return the last bytes of a file."""
        file = self._reopen_file(opened)
        try:
            size = file.source.size or 0
            data = bytearray(min(size, _END_BYTES))
            got = file.source.read_at(size - len(data), memoryview(data))
            return bytes(data[:got])
        finally:
            file.source.close()


class SelectedLinks:
    """Report the broken links that matter to the selection of one pass."""

    def __init__(self, checker: LogSetContinuityChecker | None, record_filter: RecordFilter) -> None:
        """Create the state of a pass.

        Args:
            checker: None = links are not checked.

        Attributes:
            has_selected: a record was selected.
            unselected: what is wrong before the current file, after selected records, and does not concern them.
        """
        self._checker, self._filter = checker, record_filter
        self._undecided: list[BrokenLink] = []
        self.has_selected = self._was_excluded = False
        self.unselected: list[FileFinding] = []

    def find_selected_breaks_before(self, file: LogFile, file_selection: Selection) -> list[FileFinding]:
        """Return what is wrong before this file and concerns the selection.

        file_selection: the part of the selection that applies to the file.
        """
        self.unselected = []
        if self._checker is None or not file.layout.has_records:
            return []
        is_excluded, was_excluded = is_empty_selection(file_selection), self._was_excluded
        self._was_excluded = is_excluded
        broken, links = self._checker.find_broken_links_before(file), list[BrokenLink]()
        if not (is_excluded or was_excluded):
            links = [one for one in broken if one.can_concern_selection(self._filter)]
        if self.has_selected:
            self.unselected = [FileFinding(one.file, one.finding) for one in broken if one not in links]
        selects_both = self.has_selected and self._filter.selects_all
        decided = [one for one in links if selects_both or one.is_concern_certain(self._filter)]
        self._undecided += [one for one in links if one not in decided and self.has_selected]
        return [FileFinding(one.file, one.finding) for one in decided]

    def mark_selected_and_take_breaks(self) -> list[FileFinding]:
        """Note that a record was selected; return once the undecided breaks before it."""
        self.has_selected = True
        if not self._undecided:
            return []
        findings = [FileFinding(one.file, one.finding) for one in self._undecided]
        self._undecided.clear()
        return findings


def _read_times(file: LogFile, batch: Batch, *, at_end: bool) -> list[int]:
    """Return the times of the first or of the last records of a batch."""
    count = batch.records.count
    start = max(0, count - _TIMED_RECORDS) if at_end else 0
    envelope = file.format.output.decode_envelopes(
        file.layout.context, batch, start, min(count, start + _TIMED_RECORDS)
    )
    return [one for one in envelope.time if one]


def _list_missing_gtids(found: Finding) -> list[str] | None:
    """Return the missing transactions that a finding names; None if it names none, or too many."""
    ranges: Mapping[str, list[list[int]]] = found.facts.get("missing_gtids") or {}
    spans = [span for source in ranges.values() for span in source]
    if not 0 < len(spans) < _MAX_LISTED_RANGES or sum(last - first for first, last in spans) > _MAX_CHECKED_GTIDS:
        return None
    return [
        f"{source}{':' if ':' in source or source.count('-') > 1 else '-'}{number}"
        for source, spans in ranges.items()
        for first, last in spans
        for number in range(first, last + 1)
    ]


def _is_local_file(file: LogFile) -> bool:
    """Return whether the file can be read a second time without a download."""
    return file.size is not None and not is_stream_path(file.path) and not is_url(file.path)


def _is_same_log(before: LogFile, after: LogFile) -> bool:
    """Return whether two files belong to one log: the same folder and stem; False for the same file."""
    stem = after.format.files.name_stem
    first, second = _member_name(before.path), _member_name(after.path)
    same_folder = os.path.dirname(os.path.abspath(before.path)) == os.path.dirname(os.path.abspath(after.path))
    return same_folder and first != second and stem(first) is not None and stem(first) == stem(second)


def _member_name(path: str) -> str:
    """Return the name of a file in its log, also if it is compressed."""
    return strip_compressed_suffix(os.path.basename(path))
