"""Validate a log set: the index against the files, and each file against the next.

One directory may hold several logs (a server's own and its relay log); files with the same base name are one log.
Source: docs/spec/mysql_binlog.md#validation (rule 12).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain as chain_of
from itertools import combinations, groupby, islice, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import join_names
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import SetFinding, SetMember
from binlogtool.formats.binlog_events.gtid.gtid_sets import (
    GtidRange,
    GtidState,
    MariadbGtidState,
    format_gtid_ranges,
    gtid_ranges_to_json,
)
from binlogtool.formats.binlog_events.wire_format import parse_version_numbers
from binlogtool.formats.mysql_binlog.index_and_state_files import (
    GTID_INDEX_NAME,
    GtidIndexContext,
    IndexListing,
    LogName,
    TextFileContext,
    TextFileKind,
    parse_log_name,
    to_printable,
)
from binlogtool.formats.mysql_binlog.validate.gtid_rules import (
    BinlogFacts,
    FileReference,
    get_gtid_state_after,
    get_gtid_state_before,
)

# --- Link between two consecutive files of a log ---

MAX_SUSPECTS = 8
"""Maximum number of files next to a broken link that are tested as exchanged."""


class ChainedLog(msgspec.Struct, frozen=True, eq=False):
    """One log file of a set."""

    member: SetMember
    name: LogName

    @property
    def facts(self) -> BinlogFacts | None:
        """The facts that the rules need; None if the file could not be read."""
        facts = self.member.verdict.facts if self.member.verdict is not None else None
        return facts if isinstance(facts, BinlogFacts) and self.member.layout is not None else None

    @property
    def rotation(self) -> FileReference | None:
        """The last ROTATE that the server itself wrote; None without one."""
        return _separate_own_rotation(self)[0]

    @property
    def sources(self) -> Sequence[str]:
        """Names of the source's files in the ROTATE events of a relay log."""
        return _separate_own_rotation(self)[1]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return 0 if self.member.tail is None else self.member.tail.size

    def rotates_to(self, name: str) -> bool:
        """Return whether the log ends with a ROTATE to this file."""
        return self.rotation is not None and self.rotation.name == name

    @property
    def gtid_list_offset(self) -> int:
        """Offset of the event that lists the GTIDs of earlier files."""
        return 0 if self.facts is None else self.format_description_offset + self.description_size

    @property
    def format_description_offset(self) -> int:
        """Offset of FORMAT_DESCRIPTION."""
        return 0 if self.member.layout is None else self.member.layout.frames_at

    @property
    def description_size(self) -> int:
        """Size of FORMAT_DESCRIPTION in bytes."""
        size: int = 0 if self.member.layout is None else self.member.layout.context.description.size
        return size


@lru_cache(maxsize=8)
def _separate_own_rotation(log: ChainedLog) -> tuple[FileReference | None, Sequence[str]]:
    """Return the server's own last ROTATE and the names of the source's files; the last few results are cached."""
    facts = log.facts
    if facts is None:
        return None, ()
    own = [one for one in facts.sources if (name := parse_log_name(one)) is not None and name.base == log.name.base]
    rotation = FileReference(own[-1], 0) if own and facts.is_relay else None
    return facts.rotation or rotation, [one for one in facts.sources if one not in own]


@lru_cache(maxsize=4)
def _get_states(log: ChainedLog) -> tuple[GtidState | None, GtidState | None]:
    """Return the GTID states before and after a file. Only a few are cached: 100,000 files would need much memory."""
    return (None, None) if log.facts is None else (get_gtid_state_before(log.facts), get_gtid_state_after(log.facts))


def is_rotation_target(before: ChainedLog, name: LogName) -> bool:
    """Return whether the ROTATE at the end of `before` names this file; True without ROTATE. Renaming keeps numbers."""
    if before.rotation is None or before.rotates_to(name.name):
        return True
    target = parse_log_name(before.rotation.name)
    return target is not None and target.base != name.base and target.number == name.number


def has_matching_gtids(before: ChainedLog, after: ChainedLog) -> bool:
    """Return whether `after` begins with the GTIDs that `before` ends with."""
    lost, unknown = _find_lost_and_unlisted_gtids(before, after)
    return not lost and not unknown


def _find_lost_and_unlisted_gtids(before: ChainedLog, after: ChainedLog) -> tuple[list[GtidRange], list[GtidRange]]:
    """Return the GTIDs missing between two files, and the GTIDs of the first file that the second does not list."""
    end, start = _get_states(before)[1], _get_states(after)[0]
    if end is None or start is None or before.facts is None:
        return [], []
    unknown = start.list_transactions_only_in(end)
    if before.facts.open_group is not None and len(unknown) == 1 and unknown[0].first == unknown[0].last:
        unknown = []  # the GTID of the transaction open at the end, which the server rolled back
    return end.list_transactions_only_in(start), unknown


def is_proven_successor(before: ChainedLog, after: ChainedLog) -> bool:
    """Return whether it is proven that nothing is missing between two files."""
    has_states = _get_states(before)[1] is not None and _get_states(after)[0] is not None
    return has_states and has_matching_gtids(before, after)


def is_link_broken(names: Sequence[LogName], logs: Sequence[ChainedLog], index: int) -> bool:
    """Return whether the link between file `index` and the next is broken; False across a gap in the file numbers."""
    if index < 0 or index + 1 >= len(logs) or names[index + 1].number != names[index].number + 1:
        return False
    before, after = logs[index], logs[index + 1]
    return not (is_rotation_target(before, names[index + 1]) and has_matching_gtids(before, after))


def find_exchanged_files(logs: Sequence[ChainedLog]) -> tuple[ChainedLog, ChainedLog] | None:
    """Return two files whose names were exchanged: after swapping them back all links are valid. Else None."""
    names = [log.name for log in logs]
    broken_links = [at for at in range(len(logs) - 1) if is_link_broken(names, logs, at)]
    suspects = sorted({place for at in broken_links for place in (at, at + 1)})[:MAX_SUSPECTS]
    for first, second in combinations(suspects, 2):
        link_indexes = {first - 1, first, second - 1, second}
        if len(link_indexes & set(broken_links)) < 2:
            continue
        swapped = list(logs)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        if not any(is_link_broken(names, swapped, at) for at in link_indexes):
            return logs[first], logs[second]
    return None


def iter_exchanged_findings(logs: Sequence[ChainedLog], pair: tuple[ChainedLog, ChainedLog]) -> Iterator[SetFinding]:
    """Yield the findings about two exchanged files."""
    for log, other in (pair, pair[::-1]):
        claim = f"exchanged with {to_printable(other.name.name)}: this file was written under that name"
        proofs = list(_iter_exchange_proofs(logs, log))
        text = claim + (f" ({'; '.join(proofs)})" if proofs else "")
        found = make_finding(
            "meta-mismatch", log.gtid_list_offset, 0, text, exchanged_with=to_printable(other.name.name)
        )
        yield SetFinding(log.member.name, found)


def _iter_exchange_proofs(logs: Sequence[ChainedLog], log: ChainedLog) -> Iterator[str]:
    """Yield the proofs that a file was exchanged."""
    index = logs.index(log)
    if index + 1 < len(logs) and log.rotation is not None and not is_rotation_target(log, logs[index + 1].name):
        yield f"it ends with a ROTATE to {to_printable(log.rotation.name)}"
    for before, after in pairwise(logs[max(index - 1, 0) : index + 2]):
        if not has_matching_gtids(before, after):
            other = before if after is log else after
            yield f"its GTIDs and those of {to_printable(other.name.name)} do not follow each other"


def check_consecutive_files(before: ChainedLog, after: ChainedLog) -> Iterator[SetFinding]:
    """Yield findings about two files with consecutive numbers."""
    yield from _check_rotate_target(before, after)
    lost, unknown = _find_lost_and_unlisted_gtids(before, after)
    damage_start = None if before.member.tail is None else before.member.tail.first_damage
    if lost and damage_start is not None:
        text = f"transactions lost in the damaged part: {format_gtid_ranges(lost)}"
        yield SetFinding(
            before.member.name,
            make_finding("gap-in-sequence", damage_start, 0, text, missing_gtids=gtid_ranges_to_json(lost)),
        )
    elif lost:
        text = (
            f"transactions are missing between {to_printable(before.name.name)} and this file: "
            f"{format_gtid_ranges(lost)}"
        )
        yield _make_gtid_list_finding(after, "gap-in-sequence", text, lost)
    if unknown:
        text = (
            f"transactions at the end of {to_printable(before.name.name)} are unknown here: "
            f"{format_gtid_ranges(unknown)}"
        )
        is_after_crash = before.facts is not None and before.facts.is_mariadb and before.facts.in_use
        if is_after_crash:
            text += (
                "; MariaDB writes an older list if its crash recovery read several files, and continues "
                "the numbers from the log"
            )
        yield _make_gtid_list_finding(
            after, "sequence-regression", text, unknown, severity=Severity.NOTE if is_after_crash else None
        )
    yield from _check_source_files(before, after)


def _make_gtid_list_finding(
    log: ChainedLog, finding_id: str, text: str, gtid_ranges: list[GtidRange], severity: Severity | None = None
) -> SetFinding:
    """Return a finding at the event that lists the GTIDs of earlier files."""
    facts: dict[str, Any] = {
        "missing_gtids" if finding_id == "gap-in-sequence" else "unknown_gtids": gtid_ranges_to_json(gtid_ranges)
    }
    return SetFinding(
        log.member.name, make_finding(finding_id, log.gtid_list_offset, 0, text, severity=severity, **facts)
    )


def _check_rotate_target(before: ChainedLog, after: ChainedLog) -> Iterator[SetFinding]:
    """Yield a finding if the ROTATE does not name the next file."""
    rotation = before.rotation
    if rotation is None or rotation.name == after.name.name:
        return
    is_renamed = is_rotation_target(before, after.name)
    text = f"ends with a ROTATE to {to_printable(rotation.name)}; the next file is {to_printable(after.name.name)}"
    found = make_finding(
        "meta-mismatch", rotation.offset, 0, text + (": renamed" if is_renamed else ""),
        severity=Severity.NOTE if is_renamed else Severity.ERROR, rotates_to=to_printable(rotation.name),
    )  # fmt: skip
    yield SetFinding(before.member.name, found)


def _check_source_files(before: ChainedLog, after: ChainedLog) -> Iterator[SetFinding]:
    """Yield findings about relay logs whose source files do not follow each other."""
    if before.facts is None or after.facts is None:
        return
    for old, new in pairwise((*before.sources[-1:], *after.sources)):
        first, second = parse_log_name(old), parse_log_name(new)
        if first is None or second is None or first.base != second.base:
            continue
        if second.number > first.number + 1 or second.number < first.number:
            id_ = "gap-in-sequence" if second.number > first.number else "sequence-regression"
            text = f"continues with the source's file {to_printable(new)} after {to_printable(old)}"
            found = make_finding(id_, after.format_description_offset, 0, text, severity=Severity.WARNING)
            yield SetFinding(after.member.name, found)


# --- Validation of a log set ---

MAX_MISSING = 100
"""Maximum number of missing files that are reported one by one."""

_FLAG_CLEARED_SINCE = (5, 6)
"""First MySQL version that clears the in-use flag after recovery; MariaDB never does."""

_OPEN_ENDS = ("torn-tail", "incomplete-transaction")


class ListedFiles:
    """Files of one log that an index lists; empty if there is no index."""

    def __init__(self, index: SetMember | None = None, listing: IndexListing | None = None) -> None:
        self.index = index
        self._listing = listing
        self._numbers = listing.sorted_numbers() if listing is not None else array("q")

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number

    def __len__(self) -> int:
        return len(self._numbers)

    def get_listed_name(self, number: int) -> str:
        """Return the name that is listed for a number."""
        assert self._listing is not None
        return self._listing.get_listed_name(number)

    @property
    def lowest(self) -> int:
        """The lowest number."""
        return self._numbers[0]

    @property
    def highest(self) -> int:
        """The highest number."""
        return self._numbers[-1]

    def find_listed_outside(self, low: int, high: int) -> tuple[int, Iterator[int]]:
        """Return how many listed numbers are below `low` or above `high`, and an iterator over them."""
        below, above = bisect_left(self._numbers, low), bisect_right(self._numbers, high)
        count = below + len(self._numbers) - above
        return count, chain_of(islice(self._numbers, below), islice(self._numbers, above, None))


class LogChain(msgspec.Struct, frozen=True):
    """One log; `logs`: its files by number, without duplicate numbers; `listed`: the files that an index lists."""

    base: str
    logs: list[ChainedLog]
    listed: ListedFiles


def validate_set(members: Sequence[SetMember]) -> list[SetFinding]:
    """Validate all files together, log by log, and return the findings."""
    return list(_iter_set_findings(members))


def _iter_set_findings(members: Sequence[SetMember]) -> Iterator[SetFinding]:
    """Yield all findings about the files together."""
    logs = _group_logs_by_base_name(members)
    texts = [(member, context) for member in members if isinstance(context := _get_context(member), TextFileContext)]
    indexes = [(member, context) for member, context in texts if context.kind is TextFileKind.INDEX]
    listings = _collect_listings(indexes)
    yield from _iter_mixed_server_findings(logs)
    for base in sorted({*logs, *listings}):
        listed_files, chain_logs = listings.get(base, ListedFiles()), logs.get(base, [])
        if chain_logs:
            yield from _iter_duplicate_number_findings(chain_logs)
            yield from _validate_chain(LogChain(base, _drop_duplicates(chain_logs), listed_files))
        elif listed_files.index is not None:
            yield _make_all_missing_finding(listed_files.index, listed_files)
    for member, context in texts:
        yield from _check_text_file(member, context, logs)
    for member in members:
        match = GTID_INDEX_NAME.fullmatch(member.name)
        if match and isinstance(_get_context(member), GtidIndexContext) and _find_log(logs, match["log"]) is None:
            text = f"the GTID index of {to_printable(match['log'])}, which does not exist"
            yield SetFinding(member.name, make_finding("extra-member", 0, 0, text))


def _iter_mixed_server_findings(logs: Mapping[str, list[ChainedLog]]) -> Iterator[SetFinding]:
    """Yield findings about logs of several servers, by base names and writers; relay logs may be beside a log."""
    is_relay = {base: getattr(_get_context(chain[0].member), "is_relay_log", True) for base, chain in logs.items()}
    binlogs = {base: chain for base, chain in logs.items() if not is_relay[base]}
    if len(binlogs) > 1:
        names = join_names(map(to_printable, sorted(binlogs)))
        text = f"there are several logs here ({names}): name the files of one log"
        first = binlogs[sorted(binlogs)[1]][0]
        yield SetFinding(first.member.name, make_finding("extra-member", None, 0, text))
    for chain in binlogs.values():
        for before, after in pairwise(chain):
            writers = [_describe_writer(_get_context(one.member)) for one in (before, after)]
            if None not in writers and writers[0] != writers[1]:
                text = f"it was written by {writers[1]}, {to_printable(before.name.name)} by {writers[0]}"
                text += ": these are logs of two servers, or the server was replaced or its id changed"
                yield SetFinding(after.member.name, make_finding("extra-member", None, 0, text))


def _describe_writer(context: Any) -> str | None:
    """Return the product and the id of the server that wrote a log; None if they are unknown."""
    server_id = getattr(context, "server_id", None)
    if server_id is None:
        return None
    return f"{'MariaDB' if context.description.is_mariadb else 'MySQL'} with server id {server_id}"


def _get_context(member: SetMember) -> Any:
    """Return the layout context of a member."""
    return None if member.layout is None else member.layout.context


def _group_logs_by_base_name(members: Sequence[SetMember]) -> dict[str, list[ChainedLog]]:
    """Return the log files by base name, sorted by number."""
    logs: dict[str, list[ChainedLog]] = {}
    for member in members:
        name = parse_log_name(member.name)
        if name is None or isinstance(_get_context(member), TextFileContext | GtidIndexContext):
            continue
        logs.setdefault(name.base, []).append(ChainedLog(member, name))
    for chain_logs in logs.values():
        chain_logs.sort(key=_sort_key)
    return logs


def _sort_key(log: ChainedLog) -> tuple[int, int, str]:
    """Return the sort key of a log file."""
    return _name_sort_key(log.name)


def _name_sort_key(name: LogName) -> tuple[int, int, str]:
    """Return the sort key of a log name."""
    return name.number, len(name.name), name.name


def _find_log(logs: Mapping[str, list[ChainedLog]], name: str) -> ChainedLog | None:
    """Return the log file with this name."""
    parsed = parse_log_name(name)
    candidates = [] if parsed is None or parsed.name != name else logs.get(parsed.base, [])
    index = bisect_left(candidates, _name_sort_key(parsed), key=_sort_key) if parsed is not None else 0
    return candidates[index] if index < len(candidates) and candidates[index].name.name == name else None


def _collect_listings(indexes: Sequence[tuple[SetMember, TextFileContext]]) -> dict[str, ListedFiles]:
    """Return the listing of each base name; if two indexes list it, the index with the same base name is used."""
    listings: dict[str, ListedFiles] = {}
    for member, context in indexes:
        for base, listing in context.listings.items():
            if base not in listings or member.name == f"{base}.index":
                listings[base] = ListedFiles(member, listing)
    return listings


def _make_all_missing_finding(index: SetMember, listed: ListedFiles) -> SetFinding:
    """Return the finding about an index whose files are all missing."""
    first, last = (
        to_printable(listed.get_listed_name(listed.lowest)),
        to_printable(listed.get_listed_name(listed.highest)),
    )
    if len(listed) > 1:
        text = f"none of the {len(listed):,} listed files is in this directory: {first} to {last}"
    else:
        text = f"the one listed file is not in this directory: {first}"
    return SetFinding(index.name, make_finding("missing-member", 0, 0, text, missing=len(listed)))


def _iter_duplicate_number_findings(logs: list[ChainedLog]) -> Iterator[SetFinding]:
    """Yield findings about files with the same number."""
    for first, second in pairwise(logs):
        if first.name.number == second.name.number:
            text = f"{to_printable(first.name.name)} has the same number: only one of them can belong to the log"
            yield SetFinding(second.member.name, make_finding("duplicate-sequence", 0, 0, text))


def _drop_duplicates(logs: list[ChainedLog]) -> list[ChainedLog]:
    """Return one file per number: the one with the fewest digits, as servers write it."""
    return [next(same) for _, same in groupby(logs, lambda log: log.name.number)]


# -- one log -----------------------------------------------------------------------------------------------------------


def _validate_chain(chain: LogChain) -> Iterator[SetFinding]:
    """Yield the findings about one log."""
    yield from _iter_missing_file_findings(chain)
    yield from _iter_unlisted_file_findings(chain)
    exchanged_pair = find_exchanged_files(chain.logs)
    if exchanged_pair is not None:
        yield from iter_exchanged_findings(chain.logs, exchanged_pair)
    for before, after in pairwise(chain.logs):
        is_exchanged = exchanged_pair is not None and any(log in exchanged_pair for log in (before, after))
        if not is_exchanged and after.name.number == before.name.number + 1:
            yield from check_consecutive_files(before, after)
    yield from _check_last_rotation(chain)
    yield from _check_checkpoints(chain, exchanged_pair or ())
    for log, after in pairwise(chain.logs):
        yield from _check_log_closed(chain, log, after)
    yield from _check_continued_transactions(chain)


def _iter_missing_file_findings(chain: LogChain) -> Iterator[SetFinding]:
    """Yield findings about missing files that the index names or that a gap in the numbers shows."""
    newest = chain.logs[-1]
    gaps = [(before, after) for before, after in pairwise(chain.logs) if after.name.number > before.name.number + 1]
    count, outside = chain.listed.find_listed_outside(chain.logs[0].name.number, newest.name.number)
    total = count + sum(after.name.number - before.name.number - 1 for before, after in gaps)
    reported = 0
    for number in islice(outside, MAX_MISSING):
        reported += 1
        last = newest if newest.name.number == number - 1 else None
        yield _make_missing_file_finding(chain, number, last, [], total if reported == MAX_MISSING else 0)
    for before, after in gaps:
        gtid_ranges, _ = _find_lost_and_unlisted_gtids(before, after)
        for number in range(before.name.number + 1, after.name.number):
            if reported == MAX_MISSING:
                return
            reported += 1
            last = before if before.name.number == number - 1 else None
            yield _make_missing_file_finding(chain, number, last, gtid_ranges, total if reported == MAX_MISSING else 0)
            gtid_ranges = []


def _make_missing_file_finding(
    chain: LogChain, number: int, previous: ChainedLog | None, gtid_ranges: list[Any], total: int
) -> SetFinding:
    """Return the finding about a missing file, with all evidence that it should exist."""
    index = chain.listed.index
    is_listed = index is not None and number in chain.listed
    file_name = chain.listed.get_listed_name(number) if is_listed else chain.logs[0].name.make_sibling(number)
    reasons = [f"listed in {to_printable(index.name)}"] if is_listed and index is not None else []
    if previous is not None and previous.rotates_to(file_name):
        reasons.append(f"named by the ROTATE at the end of {to_printable(previous.name.name)}")
    reason = " and ".join(reasons) or "its number is between those of other files"
    text = f"{to_printable(file_name)} does not exist: {reason}"
    facts: dict[str, Any] = {"missing": to_printable(file_name)}
    if chain.logs[0].name.number < number < chain.logs[-1].name.number:
        facts["between"] = True
    if gtid_ranges:
        text += f"; transactions lost: {format_gtid_ranges(gtid_ranges)}"
        facts["missing_gtids"] = gtid_ranges_to_json(gtid_ranges)
    if total > MAX_MISSING:
        text += f" ({total:,} files are missing in all)"
    return SetFinding(file_name, make_finding("missing-member", None, 0, text, **facts))


def _iter_unlisted_file_findings(chain: LogChain) -> Iterator[SetFinding]:
    """Yield findings about files missing in the index; replicas skip the transactions of those between listed files."""
    index, listed = chain.listed.index, chain.listed
    if index is None:
        return
    is_index_valid = getattr(_get_context(index), "sound", False)
    for previous, log in zip([None, *chain.logs], chain.logs, strict=False):
        number = log.name.number
        if number in listed:
            continue
        text = f"not listed in {to_printable(index.name)}: the server ignores it"
        if previous is not None and previous.name.number == number - 1 and previous.rotates_to(log.name.name):
            text += f", although {to_printable(previous.name.name)} ends with a ROTATE to it"
        is_in_middle = len(listed) > 0 and listed.lowest < number < listed.highest
        if is_in_middle:
            text += "; replicas would miss its transactions"
        severity = Severity.ERROR if is_in_middle and is_index_valid else Severity.WARNING
        found = make_finding(
            "extra-member", 0, log.size, text, severity=severity, not_in_index=to_printable(log.name.name)
        )
        yield SetFinding(log.member.name, found)


def _check_last_rotation(chain: LogChain) -> Iterator[SetFinding]:
    """Yield a finding if the newest file names a newer one."""
    last = chain.logs[-1]
    rotation = last.rotation
    target = None if rotation is None else parse_log_name(rotation.name)
    if rotation is None or target is None or last.name.number + 1 in chain.listed:
        return
    if target.number == last.name.number + 1:
        text = f"the log continues in {to_printable(rotation.name)}, which does not exist"
        found = make_finding(
            "missing-member", rotation.offset, 0, text, severity=Severity.WARNING, next_file=to_printable(rotation.name)
        )
        yield SetFinding(last.member.name, found)


def _check_checkpoints(chain: LogChain, exchanged_logs: Sequence[ChainedLog]) -> Iterator[SetFinding]:
    """Yield findings about BINLOG_CHECKPOINT events: each must name this file or an older one of the log."""
    first, last = chain.logs[0], chain.logs[-1]
    for log in chain.logs:
        if log.facts is None or log.facts.is_relay or log in exchanged_logs:
            continue
        for checkpoint in dict.fromkeys(log.facts.checkpoints):
            name = parse_log_name(checkpoint.name)
            if name is None or (name.base == chain.base and name.number > log.name.number):
                text = f"BINLOG_CHECKPOINT names {to_printable(checkpoint.name)}, which cannot be older than this file"
                found = make_finding("meta-mismatch", log.gtid_list_offset, 0, text)
                yield SetFinding(log.member.name, found)
    last_checkpoints = last.facts.checkpoints if last.facts is not None and last.facts.in_use else ()
    needed_log = parse_log_name(last_checkpoints[-1].name) if last_checkpoints else None
    if needed_log is not None and needed_log.base == chain.base and needed_log.number < first.name.number:
        text = f"the server needs {to_printable(needed_log.name)} for its recovery after a crash, but it does not exist"
        found = make_finding("missing-member", last.gtid_list_offset, 0, text, missing=to_printable(needed_log.name))
        yield SetFinding(last.member.name, found)


def _check_log_closed(chain: LogChain, log: ChainedLog, next_log: ChainedLog) -> Iterator[SetFinding]:
    """Yield findings about a file that was not closed although another one follows."""
    facts, tail = log.facts, log.member.tail
    if facts is None or tail is None:
        return
    never_cleared = facts.is_mariadb or parse_version_numbers(facts.server_version) < _FLAG_CLEARED_SINCE
    severity = Severity.WARNING if never_cleared else Severity.ERROR
    if facts.in_use:
        durable = log.member.verdict.durable_end if log.member.verdict is not None else None
        torn_bytes = tail.size - (tail.end if durable is None else min(durable, tail.size))
        text = f"in-use flag set, and {to_printable(chain.logs[-1].name.name)} is newer: the server crashed; "
        if facts.is_mariadb:
            text += (
                f"it left the file unchanged and rolled back what is after the last transaction ({torn_bytes:,} bytes)"
            )
        elif never_cleared:
            text += (
                "MySQL before 5.6 leaves the in-use flag of such a file set, and keeps all bytes after "
                "its last transaction"
            )
        else:
            text += "when it starts, a server repairs only the newest file"
        note_severity = Severity.WARNING if torn_bytes else Severity.NOTE
        found = make_finding(
            "unclean-close", log.format_description_offset, log.description_size, text,
            severity=note_severity if never_cleared else severity,
            record=0, torn_bytes=torn_bytes,
        )  # fmt: skip
        yield SetFinding(log.member.name, found, ("unclean-close",))
    elif next_log.facts is not None and is_proven_successor(log, next_log):
        text = f"neither ROTATE nor STOP at the end, and {to_printable(next_log.name.name)} continues exactly there: "
        text += "the server truncated the file in its recovery after a crash"
        for item in _list_file_findings(log):
            if item.id == "unclean-close":
                yield SetFinding(log.member.name, replace(item, severity=Severity.NOTE, message=text), (item.id,))
    open_end_findings = [
        one for one in _list_file_findings(log) if one.id in _OPEN_ENDS and one.severity is not severity
    ]
    for item in open_end_findings:
        if item.id == "incomplete-transaction" and (facts.is_relay or not facts.in_use):
            continue
        yield SetFinding(log.member.name, item.copy_with_severity(severity), (item.id,))


def _list_file_findings(log: ChainedLog) -> Sequence[Finding]:
    """Return the findings about one file."""
    tail = log.member.tail.findings if log.member.tail is not None else ()
    return (*tail, *(log.member.verdict.findings if log.member.verdict is not None else ()))


def _check_continued_transactions(chain: LogChain) -> Iterator[SetFinding]:
    """Yield findings about groups that continue from one MariaDB relay log to the next."""
    for previous, next_log in pairwise(chain.logs):
        first, second = previous.facts, next_log.facts
        if (
            first is None
            or second is None
            or not (second.is_relay and second.is_mariadb)
            or first.is_damaged
            or second.is_damaged
        ):
            continue
        if next_log.name.number != previous.name.number + 1:
            continue
        if second.begins_in_group and first.open_group is None:
            text = f"it begins inside a transaction, and {to_printable(previous.name.name)} does not end inside one"
            yield SetFinding(
                next_log.member.name,
                make_finding("incomplete-transaction", next_log.format_description_offset, 0, text),
            )
        elif first.open_group is not None and not second.begins_in_group:
            text = f"a transaction is open at the end, and {to_printable(next_log.name.name)} does not continue it"
            found = make_finding("incomplete-transaction", first.open_group, 0, text, severity=Severity.WARNING)
            yield SetFinding(previous.member.name, found, ("incomplete-transaction",))


# -- files next to the logs -----------------------------------------------------------------------------------------


def _check_text_file(
    member: SetMember, context: TextFileContext, logs: Mapping[str, list[ChainedLog]]
) -> Iterator[SetFinding]:
    """Yield findings about a text file."""
    stem = member.name.rpartition(".")[0]
    if context.kind is TextFileKind.STATE:
        chain_logs = logs.get(stem)
        yield from _check_state(member, context, chain_logs[-1]) if chain_logs else _unrelated_finding(member)
    elif context.kind is TextFileKind.INDEX and not context.listings and stem not in logs:
        yield from _unrelated_finding(member)
    elif context.kind is TextFileKind.INFO and context.position is not None:
        # Findings about the position from which the replica continues
        name, offset = context.position
        log, parsed = _find_log(logs, name), parse_log_name(name)
        if log is None and parsed is not None and parsed.base in logs:
            text = f"the replica continues in {to_printable(name)}, which does not exist"
            yield SetFinding(member.name, make_finding("meta-mismatch", 0, 0, text))
        elif log is not None and log.member.tail is not None and offset > log.member.tail.size:
            text = (
                f"the replica continues at {offset:,} in {to_printable(name)}, which has {log.member.tail.size:,} bytes"
            )
            yield SetFinding(member.name, make_finding("meta-mismatch", 0, 0, text))


def _unrelated_finding(member: SetMember) -> Iterator[SetFinding]:
    """Yield the finding about a text file that belongs to no log here."""
    text = "no log in this directory has the name of this file: it is ignored"
    found = make_finding("extra-member", 0, 0, text, severity=Severity.NOTE)
    yield SetFinding(member.name, found, ("bad-header", "torn-tail", "count-out-of-bounds"))


def _check_state(member: SetMember, context: TextFileContext, last: ChainedLog) -> Iterator[SetFinding]:
    """Yield findings about a state file, which is written at shutdown and deleted at startup."""
    facts, end_state = last.facts, _get_states(last)[1]
    if facts is None or not context.sound or not isinstance(end_state, MariadbGtidState) or facts.is_damaged:
        return
    if last.rotation is not None:  # the state is that of the next file, which is missing
        return
    if facts.in_use:
        text = (
            f"written at a clean shutdown, but {to_printable(last.name.name)} was not closed: the file is "
            f"from another time"
        )
        yield SetFinding(member.name, make_finding("meta-mismatch", 0, 0, text, severity=Severity.WARNING))
    elif end_state.last_numbers != context.last_numbers:
        state = MariadbGtidState(context.last_numbers)
        missing, unknown = state.list_transactions_only_in(end_state), end_state.list_transactions_only_in(state)
        if unknown and not missing:
            yield _report_lost_end(member, last, unknown)
            return
        text = f"it does not contain the state at the end of {to_printable(last.name.name)}"
        text += f"; not in it: {format_gtid_ranges(missing)}" if missing else ""
        text += f"; not in the log: {format_gtid_ranges(unknown)}" if unknown else ""
        found = make_finding(
            "meta-mismatch", 0, 0, text, state=dict(context.last_numbers), log=dict(end_state.last_numbers)
        )
        yield SetFinding(member.name, found)


def _report_lost_end(member: SetMember, last: ChainedLog, lost: list[GtidRange]) -> SetFinding:
    """Return the finding about the transactions after the last file, which the state at shutdown has."""
    name = last.name.make_sibling(last.name.number + 1)
    text = (
        f"{to_printable(name)} does not exist, or {to_printable(member.name)} is from another time: the server stopped "
    )
    text += f"after {to_printable(last.name.name)}; transactions lost: {format_gtid_ranges(lost)}"
    facts: dict[str, Any] = {"missing": to_printable(name), "missing_gtids": gtid_ranges_to_json(lost)}
    return SetFinding(name, make_finding("missing-member", None, 0, text, **facts))
