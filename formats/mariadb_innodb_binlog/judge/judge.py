"""Validate one file of the log: records, states, references and events, in the order of the file.

See docs/spec/mariadb-innodb-binlog.md#15-invariants-for-verify-and-diagnoses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from binlogtool.findings import Finding, Severity
from binlogtool.formats.binlog_events.events.type_codes import GTID
from binlogtool.formats.binlog_events.groups.marks import STANDALONE
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.judging import Tail, Verdict
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.formats.mariadb_innodb_binlog.codes import NO_FILE, RecordType
from binlogtool.formats.mariadb_innodb_binlog.groups.commits import (
    DESCRIPTION,
    CommitNumbers,
    Commits,
    GroupHead,
    first_event,
    flags2,
)
from binlogtool.formats.mariadb_innodb_binlog.groups.forest import Forest
from binlogtool.formats.mariadb_innodb_binlog.groups.groups import unreadable
from binlogtool.formats.mariadb_innodb_binlog.groups.tiles import Tiles
from binlogtool.formats.mariadb_innodb_binlog.judge.carried import Facts, LogFold
from binlogtool.formats.mariadb_innodb_binlog.judge.endings import ending
from binlogtool.formats.mariadb_innodb_binlog.judge.places import At, about, record_at
from binlogtool.formats.mariadb_innodb_binlog.judge.states import other_history, said
from binlogtool.formats.mariadb_innodb_binlog.records.assemble import columns_of
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext
from binlogtool.formats.mariadb_innodb_binlog.records.records import (
    Commit,
    Gtid,
    Reference,
    Xid,
    parse_commit,
    parse_completed,
    parse_node,
    parse_prepared,
    parse_state,
    shortest,
)
from binlogtool.formats.mariadb_innodb_binlog.records.screening import Screen
from binlogtool.formats.mariadb_innodb_binlog.records.store import Store, UnreadableError
from binlogtool.limits import Limits

_T = RecordType
_COMMIT, _STATE, _NODE = int(_T.COMMIT), int(_T.GTID_STATE), int(_T.OOB_DATA)
_SHARED = "mariadb-innodb-binlog.log"
_MOST_PENDING = 10_000

Found = Iterator[Finding]


def judge(layout: Layout, compile_: Callable[[Kernel], Kernel], limits: Limits) -> FileJudge:
    """Create the validator of one file (`ValidationRules.validator`)."""
    context: FileContext = layout.context
    fold: LogFold = context.shared.setdefault(_SHARED, LogFold())
    return FileJudge(context, layout, fold, Commits(compile_), Screen(compile_), limits)


class FileJudge:
    """`formats.judging.Judge` for one file."""

    def __init__(
        self, context: FileContext, layout: Layout, fold: LogFold, commits: Commits, screen: Screen, limits: Limits
    ) -> None:
        self.context, self.layout, self.fold, self.limits = context, layout, fold, limits
        self.number = context.number or 0
        self.types: Counter[int] = Counter()
        self.groups = 0
        self.with_oob = 0
        self.events = 0
        self.stop = layout.frames_at
        self.end: int | None = None
        self.before = 0
        self.damages: list[tuple[int, int]] = []
        self.states: set[int] = set()
        self.first: int | None = None
        self.last: int | None = None
        self.xa_awaited: Xid | None = None
        self._commits, self._screen = commits, screen
        self._store = Store(context)
        self._oob = [0, 0]
        self._misplaced_count = 0
        self._misplaced_found: Finding | None = None
        self._begin()

    def _begin(self) -> None:
        """Forget what is carried if the file does not follow the last one, or follows damage."""
        fold = self.fold
        if fold.number is None or fold.number + 1 != self.number or not fold.whole:
            fold.replay.lose()
            fold.live.lose(self.number)

    # -- records -------------------------------------------------------------------------------------------------------

    def feed(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings about the records of a batch."""
        return list(self._feed(batch))

    def _feed(self, batch: Batch) -> Found:
        count = batch.frames.count
        codes, places, stops = columns_of(batch, 0, count, "type_code", "place", "stop")
        self.types.update(codes)
        self._nodes(batch, codes, places)
        commits = self._commits.of(batch)
        for i in self._screen(batch, self.number):
            code = codes[i]
            if code == _COMMIT:
                yield from self._commit(batch, next(commits))
            elif code == _STATE and places[i] % self.context.page_size:
                yield self._misplaced(batch, i)
            else:
                yield from _RULES[code](self, record_at(batch, i, self.number))
        self.stop = max(self.stop, max(stops, default=0))
        if self.end is not None:
            self.end = max(self.end, self._late(batch, stops))

    def _late(self, batch: Batch, stops: list[int]) -> int:
        """Return the end of the last record that could have been nested in an open one until damage came; 0 = none."""
        (nested,) = columns_of(batch, 0, batch.frames.count, "nested")
        return max((stop for stop, n in zip(stops, nested, strict=True) if not n and stop <= self.before), default=0)

    def _nodes(self, batch: Batch, codes: list[int], places: list[int]) -> None:
        """Track all out-of-band records of a batch at once."""
        if _NODE not in codes:
            return
        (sizes,) = columns_of(batch, 0, batch.frames.count, "size")
        chosen = [(self.number, place) for code, place in zip(codes, places, strict=True) if code == _NODE]
        size = [size for code, size in zip(codes, sizes, strict=True) if code == _NODE]
        self.fold.live.add(chosen, size)
        self._oob[0] += len(size)
        self._oob[1] += sum(size)

    def _misplaced(self, batch: Batch, i: int) -> Finding:
        """Report a state that is not at the start of a page; beyond the limit, the last finding is returned again."""
        self._misplaced_count += 1
        if self._misplaced_found is None or self._misplaced_count <= self.limits.max_findings_per_id:
            text = "a GTID_STATE record stands inside a page; states stand at the start of a page"
            at = record_at(batch, i, self.number)
            self._misplaced_found = about(at, "meta-mismatch", "state-mismatch", text)
        return self._misplaced_found

    def _commit(self, batch: Batch, numbers: CommitNumbers) -> Found:
        if numbers.payload >= 0 and numbers.events > 0 and numbers.type_code in (GTID, DESCRIPTION):
            self.groups += numbers.type_code == GTID
            self.events += numbers.events
            gtid = numbers.gtid
            if gtid is not None:
                yield from self._gtid(gtid, batch, numbers.at)
            if numbers.type_code == DESCRIPTION:
                self.fold.marks.restart()
            yield from self._marks(batch, numbers.at, numbers.xid, joined=numbers.joined != 0)
            self.xa_awaited = None
            return
        yield from self._odd_commit(record_at(batch, numbers.at, self.number), batch, numbers)

    def _marks(self, batch: Batch, index: int, xid: int, *, joined: bool) -> Found:
        for odd in self.fold.marks.take(xid, joined=joined):
            at = record_at(batch, index, self.number)
            yield about(at, odd.id, odd.diagnosis, odd.text, Severity.NOTE)  # the server accepts it

    def _odd_commit(self, at: At, batch: Batch, numbers: CommitNumbers) -> Found:
        """Check a COMMIT record with out-of-band data, or with a defect."""
        self.xa_awaited = None
        try:
            commit = parse_commit(at.data)
        except MalformedError as error:
            yield about(at, error.finding_id, "commit-malformed", str(error.args[0]))
            return
        head = first_event(at.data, commit.payload)
        if head.type_code not in (GTID, DESCRIPTION):
            kind = "nothing" if head.type_code is None else f"an event of type {head.type_code}"
            text = f"the group begins with {kind}, not with a GTID event"
            yield about(at, "payload-undecodable", "commit-malformed", text)
        if not shortest(commit, at.data):
            text = "an integer of the header is longer than needed: no server writes this"
            yield about(at, "varint-overlong", "commit-malformed", text, Severity.WARNING)
        if head.gtid is not None:
            yield from self._gtid(head.gtid, batch, numbers.at)
        sound, tiles = True, Tiles()
        for one in self._group(at, commit, head, tiles):
            sound = False
            yield one
        self.groups += sound and head.gtid is not None
        if sound:
            joined = tiles.behind > 0 or (tiles.several and bool(flags2(at.data, commit.payload) & STANDALONE))
            yield from self._marks(batch, numbers.at, tiles.xid, joined=joined)

    def _group(self, at: At, commit: Commit, head: GroupHead, tiles: Tiles) -> Found:
        """Check that the data of a group is complete and filled by events."""
        tiles.add(at.data[commit.payload :])
        self.with_oob += bool(commit.references)
        try:
            for reference in commit.references:
                yield from self._bounds(at, reference)
                forest = Forest(self._store, reference, at.place, self.context.max_group)
                shared = self.fold.live.reach(forest.places())
                if shared is not None:
                    text = f"the out-of-band node at {shared} belongs to another group, too"
                    yield about(at, "payload-undecodable", "oob-shape", text)
                if forest.problem is not None:
                    yield unreadable(forest.problem, at.place.offset, at.size, at.record, head)
                for piece in forest.pieces():
                    tiles.add(piece)
        except UnreadableError as error:
            yield unreadable(error, at.place.offset, at.size, at.record, head)
            return
        self.events += tiles.events
        if not tiles.whole:
            text = f"the events do not tile the group: behind {tiles.events} of them bytes are missing or left over"
            yield about(at, "payload-undecodable", "event-misaligned", text)

    def _bounds(self, at: At, reference: Reference) -> Found:
        """Check that the file does not refer to files before oob_ref_file_no (and xa_ref_file_no)."""
        header = self.context.header
        if header is None:
            return
        lowest = min(header.oob_ref_file_no, header.xa_ref_file_no, header.file_no)
        if reference.first.file_no < lowest:
            text = f"out-of-band data starts in file {reference.first.file_no}, the header says from {lowest} on"
            yield about(at, "bad-header", "bad-oob-ref", text, Severity.WARNING)

    def _gtid(self, gtid: Gtid, batch: Batch, index: int) -> Found:
        self.first = gtid.seq_no if self.first is None else self.first
        self.last = gtid.seq_no
        before = self.fold.replay.commit(gtid)
        place, stop = (int(batch.frames[name][index]) for name in ("place", "stop"))
        self.fold.span = self.number, place, stop
        if before is not None and gtid.seq_no <= before:
            text = f"GTID {gtid} comes after {gtid.domain_id}-{gtid.server_id}-{before}"
            at = record_at(batch, index, self.number)
            yield about(at, "sequence-regression", "gtid-out-of-order", text, Severity.WARNING)

    # -- other records -------------------------------------------------------------------------------------------------

    def _state(self, at: At) -> Found:
        try:
            state = parse_state(at.data)
        except MalformedError as error:
            yield about(at, error.finding_id, "state-mismatch", str(error.args[0]))
            self.fold.replay.lose()
            return
        page, inside = divmod(at.place.offset, self.context.page_size)
        self.states.update(range(page, page + min(at.chunks, 1024)))
        if state.rest:
            yield about(at, "unmapped-bytes", "state-mismatch", f"{state.rest:,} bytes behind the last GTID")
        if state.xa_ref_plus_1 > self.number + 1:
            text = f"it says that XA transactions of file {state.xa_ref_plus_1 - 1} may be pending, a later file"
            yield about(at, "meta-mismatch", "state-mismatch", text)
        header = self.context.header
        interval = header.diff_state_interval if header is not None else 0
        if inside or ((page != 1 and (not interval or page % interval)) and header is not None):
            text = f"a GTID_STATE record stands in page {page} at offset {inside}; states stand at the start of page 1 "
            yield about(at, "meta-mismatch", "state-mismatch", f"{text}and of each multiple of {interval}")
            return
        yield from self._compared(at, page, state)

    def _compared(self, at: At, page: int, state: Any) -> Found:
        replay, crossed = self.fold.replay, self.fold.inside_commit(at.place)
        differing = (
            replay.opened(state, self.number == 0, crossed) if page == 1 else replay.differential(state, crossed)
        )
        if not differing:
            return
        diagnosis = "state-chain" if page == 1 and other_history(differing) else "state-mismatch"
        what = "full" if page == 1 else "differential"
        text = f"the {what} state of page {page} does not agree with the commits before it: {said(differing)}"
        yield about(at, "meta-mismatch", diagnosis, text)

    def _node(self, at: At) -> Found:
        try:
            node = parse_node(at.data)
        except MalformedError as error:
            yield about(at, error.finding_id, "oob-shape", str(error.args[0]))
            return
        if not shortest(node, at.data):
            text = "an integer of the header is longer than needed: no server writes this"
            yield about(at, "varint-overlong", "oob-shape", text, Severity.WARNING)
        for name, place in (("left", node.left), ("right", node.right)):
            if place and place >= at.place:
                text = f"the {name} link of an out-of-band node leads to {place}, which is not before it"
                yield about(at, "dangling-reference", "oob-shape", text)

    def _dummy(self, at: At) -> Found:
        if at.data.tobytes().strip(b"\xff"):
            yield about(at, "unmapped-bytes", "bad-chunk", "a DUMMY record holds other bytes than ff")

    def _unanswered(self, at: At) -> Found:
        """Check that a COMMIT record directly follows an XA_COMPLETE that says commit."""
        if self.xa_awaited is not None:
            text = "the XA_COMPLETE record before this one says commit, and no COMMIT record follows it"
            yield about(at, "dangling-reference", "xa-malformed", text, Severity.WARNING)
        self.xa_awaited = None

    def _prepare(self, at: At) -> Found:
        yield from self._unanswered(at)
        try:
            prepared = parse_prepared(at.data)
        except MalformedError as error:
            yield about(at, error.finding_id, "xa-malformed", str(error.args[0]))
            return
        pending = self.fold.pending
        if prepared.xid in pending:
            yield about(at, "payload-undecodable", "xa-malformed", "an XID that is prepared already", Severity.WARNING)
        if len(pending) < _MOST_PENDING:
            pending[prepared.xid] = prepared
        if not prepared.reference.nodes:
            return
        try:
            forest = Forest(self._store, prepared.reference, at.place, self.context.max_group)
            if forest.problem is not None:
                raise forest.problem
        except UnreadableError as error:
            yield unreadable(error, at.place.offset, at.size, at.record, GroupHead(None, None, None, None))

    def _complete(self, at: At) -> Found:
        yield from self._unanswered(at)
        try:
            completed = parse_completed(at.data)
        except MalformedError as error:
            yield about(at, error.finding_id, "xa-malformed", str(error.args[0]))
            return
        known = self.fold.pending.pop(completed.xid, None)
        if known is None and completed.rollback and self.fold.live.first_file == 0 and not self.damages:
            text = "XA ROLLBACK of a transaction that was not prepared in this log"
            yield about(at, "dangling-reference", "xa-malformed", text, Severity.WARNING)
        self.xa_awaited = None if completed.rollback else completed.xid

    # -- the end -------------------------------------------------------------------------------------------------------

    def damage(self, start: int, end: int) -> None:
        """Record that bytes were skipped, or records could not be assembled."""
        self.stop = max(self.stop, self.context.seen.leading_end if not self.damages else 0)
        if self.end is None:
            self.end = min(self.stop, start) if start >= self.layout.frames_at else self.stop
            self.before = start
        self.damages.append((start, end))
        self.damages = self.damages[-100:]
        self.fold.replay.lose()
        self.fold.live.lose(self.number + 1)

    def finish(self, tail: Tail) -> Verdict:
        """Return the verdict: findings that only the end of the file reveals, and facts for the report."""
        fold, context = self.fold, self.context
        if self.end is None:
            self.stop = max(self.stop, context.seen.leading_end)
        found = [*ending(self, tail)]
        fold.goes_on = context.seen.open == _COMMIT
        whole = tail.first_damage is None and self.end is None
        if not context.empty:
            fold.number, fold.whole = self.number, whole
        unreached = fold.live.unreached()
        return Verdict(
            transactions=self.groups,
            record_types={_T(code).name: count for code, count in sorted(self.types.items())},
            findings=tuple(found),
            durable_end=min(self.stop, self.end) if self.end is not None else self.stop,
            repairable=not 0 < self.layout.frames_at < context.page_size,
            facts=Facts(unreached, len(fold.pending), bool(self.damages)),
            details=self._details(unreached),
            sequences=(self.first, self.last),
        )

    def _details(self, unreached: tuple[int, int]) -> Mapping[str, Any]:
        header, context = self.context.header, self.context
        shown: dict[str, Any] = {"page_size": context.page_size, "events": self.events}
        if header is not None:
            shown |= {
                "file_no": header.file_no,
                "page_count": header.page_count,
                "start_lsn": header.start_lsn,
                "diff_state_interval": header.diff_state_interval,
                "oob_ref_file_no": header.oob_ref_file_no,
                "xa_ref_file_no": None if header.xa_ref_file_no == NO_FILE else header.xa_ref_file_no,
            }
        oob = {"records": self._oob[0], "bytes": self._oob[1], "groups": self.with_oob}
        oob |= {"unreached_so_far": unreached[0], "unreached_bytes_so_far": unreached[1]}
        return {**shown, "out_of_band": oob, "xa_pending": len(self.fold.pending)}


_RULES: Mapping[int, Callable[[FileJudge, At], Found]] = {
    _T.GTID_STATE: FileJudge._state,
    _T.OOB_DATA: FileJudge._node,
    _T.DUMMY: FileJudge._dummy,
    _T.XA_PREPARE: FileJudge._prepare,
    _T.XA_COMPLETE: FileJudge._complete,
}
