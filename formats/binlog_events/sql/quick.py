"""Fast path of scripts: frequent events by compiled code (`kernels.frequent`), with the text of `statements`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from mmap import mmap
from typing import TYPE_CHECKING, Any

from binlogtool.formats.binlog_events.codes import ROWS, TYPES, EventType
from binlogtool.formats.binlog_events.groups.following import MOST, Follower, integers_of
from binlogtool.formats.binlog_events.groups.nested import Nested
from binlogtool.formats.binlog_events.groups.tracking import NOBODY, Notes, Owner
from binlogtool.formats.binlog_events.sql.events import Columns, Events, of_file, of_run
from binlogtool.formats.binlog_events.sql.kernels import events as event_kernels
from binlogtool.formats.binlog_events.sql.kernels import frequent as kernels
from binlogtool.formats.binlog_events.sql.kernels import row_statements, slots
from binlogtool.formats.binlog_events.sql.kernels import rows as row_kernels
from binlogtool.formats.binlog_events.sql.kernels.columns import EventSpans, ScriptMemory
from binlogtool.formats.binlog_events.sql.kernels.slots import DATABASE, DATABASE_SLOTS
from binlogtool.formats.binlog_events.sql.moves import Moves, enter
from binlogtool.formats.binlog_events.sql.plans import Plans
from binlogtool.formats.binlog_events.sql.session import row_checks
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.layouts import Batch, Kernel
from binlogtool.formats.unrolled import Unrolled, alone
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.binlog_events.sql.statements import Statements

_ROOM = 12 << 20
_LONGEST = 4096
"""Bytes of a BEGIN, at most."""

_NEVER = 3
"""A state that the kernel does not know."""

_MOST_MAPS = 64
_CODES, _STARTS, _ENDS = 0, 4, 5
"""Places of columns in `Events`."""

_PLACES = ("type_code", "body_start", "body_end", "offset", "end")


@cache
def _texts() -> bytes:
    """Return the constant texts of the kernel, cached."""
    return kernels.texts_of(dict(TYPES))


class Quick:
    """Compiled writer for the events of one file."""

    def __init__(self, context: FileContext, compile_: Callable[[Kernel], Kernel]) -> None:
        self._context = context
        self._follower = context.tracker.follower = Follower(context.tracker, compile_)
        self._nested: Nested | None = None
        self._compile = compile_
        self._texts = _texts()
        self._plans = Plans(self._texts + row_kernels.PIECES)
        self._out = memoryview(mmap(-1, _ROOM))  # pages are allocated on first use
        self._state = array("q", bytes(8 * slots.STATE_SIZE))
        self._moves = Moves(context.description)
        self._opened = _NEVER
        self._seen: tuple[Batch | Unrolled, Events | None] | None = None

    def write(
        self, script: Statements, batch: Batch | Unrolled, start: int, stop: int, limits: Limits
    ) -> tuple[bytes | memoryview, int]:
        """Return the text of the first of these events, valid until the next call, and the index where it ends."""
        if len(self._context.tracker.maps.by_id) > MOST:
            return b"", start
        if not self._takes(script):
            return b"", self._go_on(script, batch, start, stop)
        notes = self._context.tracker.notes(batch.batch if isinstance(batch, Unrolled) else batch)
        events = self._events(batch, notes, limits)
        if events is None:
            return b"", start
        run, texts = self._writer(script, events)
        pieces, base = list[bytes](), batch.batch.base if isinstance(batch, Unrolled) else batch.base
        while start < stop:
            self._load(script, base)
            memory = ScriptMemory(events.window, texts, self._out, _ROOM, self._moves.data, self._state)
            reached = run(start, stop, events.columns, memory)
            if reached > start:
                self._store(script, batch)
            start, made = reached, self._out[: self._state[slots.WRITTEN]]
            if not self._state[slots.FULL] and not self._learns(events, start, stop):
                return (b"".join([*pieces, made]) if pieces else made), start
            pieces.append(bytes(made))
        return b"".join(pieces), start

    def _events(self, batch: Batch | Unrolled, notes: Notes, limits: Limits) -> Events | None:
        """Return the events of a batch for the kernels, cached; None if kernels cannot read them."""
        if self._seen is None or self._seen[0] is not batch:
            self._seen = None  # release its memory first
            self._seen = batch, self._made(batch, notes, limits)
        return self._seen[1]

    def _made(self, batch: Batch | Unrolled, notes: Notes, limits: Limits) -> Events | None:
        """Load the events of a batch for the kernels; None if they cannot read them."""
        described, follower = self._context.description, self._follower
        if isinstance(batch, Batch) and batch.holder is None:
            return of_file(batch, notes, follower, described, self._texts, limits, self._compile)
        if isinstance(batch, Batch):
            numbers = follower.numbers(notes.maps)
            return of_run(alone(batch), lambda *_: numbers, described, self._texts, self._compile)
        if self._nested is None:
            self._nested = Nested(self._context.tracker, follower, self._compile)
        nested, maps = self._nested, array("q", bytes(8 * batch.count))
        outer = follower.columns(notes)["map"]
        for one, first, last, at in batch.parts:
            if one.holder is None:
                maps[at : at + last - first] = array("q", outer[first:last])

        def filled(columns: Columns, holders: Any, window: Any) -> array[int]:
            """Fill in the table maps of nested events."""
            nested.fill(tuple(columns[name] for name in ("type_code", "body_start", "body_end")), holders, window, maps)
            return maps

        return of_run(batch, filled, described, self._texts, self._compile)

    def _writer(self, script: Statements, events: Events) -> tuple[Kernel, bytes]:
        """Return the kernel for the script's options, and its texts."""
        described, exact = self._context.description, script.wording.rows == "exact"
        texts = self._plans.texts(self._follower.maps, script.rows, described)
        return self._compile(kernels.write if exact else row_statements.write_statements), texts

    def _takes(self, script: Statements) -> bool:
        """Return whether no option and no pending state needs the general writer."""
        w = script.wording
        plain = not (w.comments or w.flat or w.databases or w.only or w.until or script.knowledge.filling)
        return plain and w.tables is None and script.is_settled

    def _go_on(self, script: Statements, batch: Batch | Unrolled, start: int, stop: int) -> int:
        """Add row events in the middle of a statement; return the index where they end."""
        if isinstance(batch, Unrolled):
            return start
        begun, state, frames = script.rows.begun, self._state, batch.frames
        lost = script.transaction.adrift or script.stopped is not None or not self._context.description.has_checksums
        lost = lost or batch.holder is not None
        if lost or begun is None or len(begun.maps) > _MOST_MAPS:
            return start
        described = self._context.description
        notes = self._context.tracker.notes(batch)  # the tracker must see every batch
        state[slots.TAIL], state[slots.ID_SIZE], state[slots.PLANS] = 4, described.table_id_size, row_kernels.PLANS_AT
        spans = EventSpans._make(integers_of(frames[name], frames.count) for name in _PLACES)
        maps = self._follower.columns(notes)["map"]
        texts = self._plans.texts(self._follower.maps, script.rows, described)
        memory = ScriptMemory(batch.window, texts, self._out, _ROOM, b"", state)
        rest = (array("q", begun.maps), len(begun.maps), begun.size)
        reached: int = self._compile(event_kernels.write_lines)(start, stop, spans, maps, memory, *rest)
        if reached > start:
            low, last, high = (int(frames[name][i]) for name, i in _bounds(start, reached))
            made = bytes(self._out[: state[slots.WRITTEN]])
            begun.go_on(made, bytes(batch.window[last:high]), high - low)
        return reached

    def _load(self, script: Statements, base: int) -> None:
        """Store the script's state in the kernel's slots."""
        state, known, described = self._state, script.session.known, self._context.description
        undo, groups = script.transaction.undo, script.transaction.groups
        self._opened = state[slots.OPEN] = _NEVER if len(undo) > 1 else slots.INSIDE if undo else int(groups.open)
        state[slots.BASE], state[slots.MARIADB] = base, described.is_mariadb
        state[slots.TAIL] = 4 if described.has_checksums else 0
        state[slots.GTIDS], state[slots.ID_SIZE] = script.sets_gtids, described.table_id_size
        for place, name in _KNOWN:
            state[place] = _number(known.get(f"@@session.{name}", ""))
        skips = known.get("@@session.skip_parallel_replication")
        state[slots.PARALLEL] = -1 if skips is None or "@@session.skip_replication" in known else int(skips == "0")
        if known.get("@@session.immediate_server_version") != known.get("@@session.original_server_version"):
            state[slots.VERSION] = -1
        state[slots.PLANS] = row_kernels.PLANS_AT
        state[slots.CHECKS] = sum(row_checks(described))
        state[slots.AUTOMATIC] = script.session.gtid_next == "AUTOMATIC"
        state[slots.THREAD] = _number(known.get("@@session.pseudo_thread_id", ""))
        state[slots.TIME] = _microseconds(known.get("TIMESTAMP", ""))
        state[slots.SESSION] = self._moves.number_of(script.session)
        self._load_database(script.session.database)

    def _load_database(self, name: bytes | None) -> None:
        """Store the name of the session's database in the kernel's slots."""
        known = name is not None and len(name) < 8 * DATABASE_SLOTS - 8
        self._state[DATABASE] = len(name or b"") if known else -1
        for place in range(0, len(name or b"") if known else 0, 8):
            word = (name or b"")[place : place + 8].ljust(8, b"\0")
            self._state[DATABASE + 1 + place // 8] = int.from_bytes(word, "little", signed=True)

    def _learns(self, events: Events, at: int, stop: int) -> bool:
        """Return whether the event at which the kernel stopped was registered, so that kernels accept it from
        now on.
        """
        if at >= stop:
            return False
        codes, starts, ends = (events.columns[place] for place in (_CODES, _STARTS, _ENDS))
        code, body = codes[at], events.window[starts[at] : ends[at]]
        if code == EventType.QUERY:
            return self._moves.learn_query(bytes(body[:_LONGEST]), inside=self._state[slots.OPEN] == slots.INSIDE)
        if code in (EventType.INTVAR, EventType.RAND):
            return self._learns(events, at + 1, stop)
        place = self._context.description.table_id_size
        if code not in ROWS or len(body) < place + 2:
            return False
        return self._moves.learn_rows(int.from_bytes(body[place : place + 2], "little") & self._state[slots.CHECKS])

    def _store(self, script: Statements, batch: Batch | Unrolled) -> None:
        """Store the kernel's slots in the script's state."""
        state, known = self._state, script.session.known
        opened, last = state[slots.OPEN], state[slots.LAST_GTID]
        if last >= 0 or opened != self._opened:
            script.transaction.undo = (b"ROLLBACK",) if opened == 2 else ()
            groups = script.transaction.groups
            groups.group = opened
        if last >= 0:
            script.transaction.current = self._owner(batch, last)
            script.transaction.implied, script.skipped = NOBODY, False
        if state[slots.SERIAL] >= 0:
            known["@@session.gtid_seq_no"] = str(state[slots.SERIAL])
        if last >= 0 and script.sets_gtids and not state[slots.MARIADB]:
            script.session.gtid_next = script.transaction.current.gtid or "AUTOMATIC"
            known["@@session.original_commit_timestamp"] = str(state[slots.COMMITTED])
        if last >= 0 or opened != self._opened:
            claims = opened == slots.BEHIND_GTID and script.sets_gtids and script.session.gtid_next != "AUTOMATIC"
            script.transaction.claimed = claims
        if state[slots.MOVED]:
            self._store_session(script)

    def _owner(self, batch: Batch | Unrolled, index: int) -> Owner:
        """Return the transaction of event `index`."""
        if isinstance(batch, Unrolled):
            batch, first, _, at = batch.part_of(index)
            index += first - at
        return self._context.tracker.notes(batch).owners[index]

    def _store_session(self, script: Statements) -> None:
        """Store the kernel's session in the script's session."""
        state, known = self._state, script.session.known
        if state[slots.THREAD] >= 0:
            known["@@session.pseudo_thread_id"] = str(state[slots.THREAD])
        if state[slots.TIME] >= 0:
            seconds, part = divmod(state[slots.TIME], 1_000_000)
            known["TIMESTAMP"] = f"{seconds}.{part:06d}" if part else str(seconds)
        enter(script.session, self._moves.places[state[slots.SESSION]])


def _number(text: str) -> int:
    """Return the number in a text; -1 if it is not one, or too large for a slot."""
    number = int(text) if text.isdecimal() else -1
    return number if number < 1 << 63 else -1


def _microseconds(time: str) -> int:
    """Return a TIMESTAMP in microseconds; -1 if the session has none."""
    seconds, _, part = time.partition(".")
    return 1_000_000 * int(seconds) + int(part or 0) if seconds.isdecimal() and len(part) <= 6 else -1


def _bounds(start: int, stop: int) -> tuple[tuple[str, int], ...]:
    """Return (column, index) of the start of the first event, the start of the last one, and its end."""
    return ("offset", start), ("offset", stop - 1), ("end", stop - 1)


_KNOWN = (
    (slots.DOMAIN, "gtid_domain_id"), (slots.SERVER, "server_id"), (slots.SERIAL, "gtid_seq_no"),
    (slots.VERSION, "immediate_server_version"), (slots.COMMITTED, "original_commit_timestamp"),
)  # fmt: skip
