"""Session transitions of a script: the SET statements before frequent events, as bytes for
`sql.kernels.session`.

The script's sessions are numbered. A request is what an event needs of its session: the status block of a
QUERY, or the flags of a row event. For each session and request a cell says which session follows and which
assignments lead there.

    table    number of BEGIN requests, of all requests, offset of the cells, 0; then per request three
             numbers; then per session and request one cell
    request  of a QUERY: offset and size of its status block, and one number: offset of the
             microseconds in the block plus one (0: none), 1 << 16 if it is inside of a transaction
             (else it is a BEGIN), 1 << 17 if a backslash in its strings begins an escape, and from
             1 << 18 on the size of the text after its status block that sets sql_mode again;
             of rows: the flags of their event
    cell     the next session plus one (0: none), offset and size of the assignments

All numbers are 32 bits, big-endian.
"""

from __future__ import annotations

import re
import struct

import msgspec
from msgspec.structs import replace

from binlogtool.formats.binlog_events.ddl.modes import NO_BACKSLASH_ESCAPES
from binlogtool.formats.binlog_events.events.decoding import query_parts
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.client import PLAIN
from binlogtool.formats.binlog_events.sql.session import MODE, Query, Session, doubt, refused
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.status import status_values, variables
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import CodecError

APART = frozenset(
    {
        "TIMESTAMP", "@@session.pseudo_thread_id", "@@session.gtid_domain_id", "@@session.server_id",
        "@@session.gtid_seq_no", "@@session.skip_parallel_replication", "@@session.skip_replication",
        "@@session.original_commit_timestamp", "@@session.original_server_version",
        "@@session.immediate_server_version",
    }
)  # fmt: skip
"""What changes from transaction to transaction is no part of a session here."""

_MOST_BEGINS, _MOST_FLAGS, _MOST_SESSIONS = 24, 8, 64
_LONGEST = 2000
_PAD = bytes(16)

Place = tuple[tuple[tuple[str, str], ...], str | None, int]
"""A session: its variables, the character set of its next statement, its sql_mode."""


class Begin(msgspec.Struct, frozen=True):
    """Session that a QUERY needs, by its status block.

    `microseconds_at` is the offset of its microseconds, -1 if it has none. `inside`: it is a change inside of a
    transaction, not a BEGIN. `has_escapes`: a backslash begins an escape in its strings. `set_mode`: text that
    sets sql_mode again, before a statement that clients read by it.
    """

    block: bytes
    gap: int
    inside: bool = False
    escapes: bool = False
    mode: bytes = b""

    @property
    def number(self) -> int:
        """The third number of a request in the table, see the module."""
        return self.gap + 1 | self.inside << 16 | self.escapes << 17 | len(self.mode) << 18


class Moves:
    """Sessions of one script and the assignments that lead from one to another.

    `sessions` are the sessions by number. `data` is the table, see the module.
    """

    def __init__(self, described: FormatDescription) -> None:
        self._described = described
        self.places: list[Place] = []
        self._numbers: dict[Place, int] = {}
        self._begins: list[Begin] = []
        self._flags: list[int] = []
        self._build()

    def number_of(self, session: Session) -> int:
        """Return the number of a session; -1 if kernels do not know it."""
        if session.client != PLAIN:
            return -1
        before = len(self.places)
        number = self._number(_place_of(session))
        if len(self.places) > before:
            self._build()
        return number

    def learn_query(self, body: bytes, *, inside: bool) -> bool:
        """Register the status block of a QUERY as a request; return False if it cannot be one or is already known.

        Args:
            body: the event's body.
            inside: whether it is inside of a transaction.
        """
        try:
            parts = query_parts(body)
            status = status_values(parts.status_vars)
            every = variables(parts.status_vars, 0, len(parts.status_vars))
            places = [one.start + 1 for one in every if one.code in _MICROSECONDS]
        except (MalformedError, CodecError):
            return False
        plain = "charset" in status and len(places) < 2
        if inside:
            plain = plain and "invoker" not in status and "sql_mode" in status and _CHANGE.match(parts.sql) is not None
        elif parts.sql != b"BEGIN":
            return False
        if not plain or doubt(status, parts.sql) is not None or refused(status) is not None:
            return False
        gap = places[0] if places else -1
        block = parts.status_vars if gap < 0 else parts.status_vars[:gap] + bytes(3) + parts.status_vars[gap + 3 :]
        wish = Begin(block, gap, inside)
        if inside:
            session = Session(known={MODE: str(status["sql_mode"])})
            mode = b"".join(map(client.quick, session.assert_mode()))
            wish = replace(wish, escapes=not status["sql_mode"] & NO_BACKSLASH_ESCAPES, mode=mode)
        if wish in self._begins or len(self._begins) == _MOST_BEGINS:
            return False
        self._begins.append(wish)
        self._build()
        return True

    def learn_rows(self, flags: int) -> bool:
        """Register the flags of a row event as a request; return False if they are already known."""
        if flags in self._flags or len(self._flags) == _MOST_FLAGS:
            return False
        self._flags.append(flags)
        self._build()
        return True

    # -- the table -----------------------------------------------------------------------------------------------------

    def _number(self, place: Place) -> int:
        """Return the number of a session, assigning one if needed; -1 if there are too many."""
        number = self._numbers.get(place, -1)
        if number < 0 and len(self.places) < _MOST_SESSIONS:
            number = self._numbers[place] = len(self.places)
            self.places.append(place)
        return number

    def _build(self) -> None:
        """Build the table of all transitions from all sessions; transitions may add further sessions."""
        ways = list[tuple[int, bytes]]()
        wishes: list[Begin | int] = [*self._begins, *self._flags]
        number = 0
        while number < len(self.places):
            ways += [self._way(self.places[number], wish) for wish in wishes]
            number += 1
        cells_at = 16 + 12 * len(wishes)
        at = cells_at + 12 * len(ways)
        numbers, texts = [len(self._begins), len(wishes), cells_at, 0], list[bytes]()
        for begin in self._begins:
            numbers += [at, len(begin.block), begin.number]
            texts += [begin.block, begin.mode]
            at += len(begin.block) + len(begin.mode)
        numbers += [number for flags in self._flags for number in (flags, 0, 0)]
        for target, text in ways:
            numbers += [target + 1, at, len(text)]
            texts.append(text)
            at += len(text)
        self.data = struct.pack(f">{len(numbers)}I", *numbers) + b"".join(texts) + _PAD

    def _way(self, place: Place, wish: Begin | int) -> tuple[int, bytes]:
        """Return the session that a request leads to and the assignments; the session is -1 if kernels cannot go
        there.
        """
        session = Session(known=dict(place[0]), charset=place[1], mode=place[2])
        if isinstance(wish, int):
            made = session.for_rows(wish, 0, self._described)
        else:
            session.known[_THREAD] = "0"
            made = session.for_query(Query(status_values(wish.block), 0, 0, wish.inside), self._described)
            plain = client.ended(b"BEGIN", session.charset) == client.quick(b"BEGIN")
            if not plain or client.read(b"BEGIN", session.charset, session.mode)[1] is not None:
                return -1, b""
        text = made[0][len(_SET) :] if made else b""
        if session.client != PLAIN or len(made) > 1 or (made and not made[0].startswith(_SET)) or len(text) > _LONGEST:
            return -1, b""
        return self._number(_place_of(session)), text


_SET = b"SET "
_THREAD = "@@session.pseudo_thread_id"
_MICROSECONDS = (13, 128)
"""MySQL's and MariaDB's status variables."""

_CHANGE = re.compile(rb"(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)


def _place_of(session: Session) -> Place:
    """Return the state of a session without the variables that change with each transaction."""
    own = tuple(sorted((name, value) for name, value in session.known.items() if name not in APART))
    return own, session.charset, session.mode


def enter(session: Session, place: Place) -> None:
    """Make the script's session have this state."""
    apart = {name: value for name, value in session.known.items() if name in APART}
    session.known = dict(place[0]) | apart
    session.charset, session.mode = place[1], place[2]
    session.forget_query()
