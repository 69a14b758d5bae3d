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
from binlogtool.formats.binlog_events.events.decoding import parse_query
from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.client import UTF8MB4
from binlogtool.formats.binlog_events.sql.session import SQL_MODE, QuerySession, ScriptSession, find_doubt, find_refusal
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.binlog_events.wire.status import decode_status_variables, iter_status_variables
from binlogtool.formats.fields import MalformedError
from binlogtool.formats.layouts import DecompressionError

TRANSACTION_VARIABLES = frozenset(
    {
        "TIMESTAMP", "@@session.pseudo_thread_id", "@@session.gtid_domain_id", "@@session.server_id",
        "@@session.gtid_seq_no", "@@session.skip_parallel_replication", "@@session.skip_replication",
        "@@session.original_commit_timestamp", "@@session.original_server_version",
        "@@session.immediate_server_version",
    }
)  # fmt: skip
"""What changes from transaction to transaction is no part of a session here."""

_MAX_QUERY_REQUESTS, _MAX_ROW_REQUESTS, _MAX_SESSIONS = 24, 8, 64
_MAX_ASSIGNMENT_BYTES = 2000
_PAD = bytes(16)

SessionState = tuple[tuple[tuple[str, str], ...], str | None, int]
"""A session: its variables, the character set of its next statement, its sql_mode."""


class QueryRequest(msgspec.Struct, frozen=True):
    """Session that a QUERY needs, by its status block.

    `microseconds_at` is the offset of its microseconds, -1 if it has none. `inside`: it is a change inside of a
    transaction, not a BEGIN. `has_escapes`: a backslash begins an escape in its strings. `set_mode`: text that
    sets sql_mode again, before a statement that clients read by it.
    """

    block: bytes
    microseconds_at: int
    inside: bool = False
    has_escapes: bool = False
    set_mode: bytes = b""

    @property
    def packed_flags(self) -> int:
        """The third number of a request in the table, see the module."""
        return self.microseconds_at + 1 | self.inside << 16 | self.has_escapes << 17 | len(self.set_mode) << 18


class SessionTransitions:
    """Sessions of one script and the assignments that lead from one to another.

    `sessions` are the sessions by number. `data` is the table, see the module.
    """

    def __init__(self, described: FormatDescription) -> None:
        self._description = described
        self.sessions: list[SessionState] = []
        self._numbers: dict[SessionState, int] = {}
        self._query_requests: list[QueryRequest] = []
        self._row_flags: list[int] = []
        self._build_table()

    def session_number(self, session: ScriptSession) -> int:
        """Return the number of a session; -1 if kernels do not know it."""
        if session.client_charset != UTF8MB4:
            return -1
        before = len(self.sessions)
        number = self._assign_number(_session_state(session))
        if len(self.sessions) > before:
            self._build_table()
        return number

    def add_query(self, body: bytes, *, inside: bool) -> bool:
        """Register the status block of a QUERY as a request; return False if it cannot be one or is already known.

        Args:
            body: the event's body.
            inside: whether it is inside of a transaction.
        """
        try:
            parts = parse_query(body)
            status = decode_status_variables(parts.status_vars)
            status_variables = iter_status_variables(parts.status_vars, 0, len(parts.status_vars))
            offsets = [one.start + 1 for one in status_variables if one.code in _MICROSECONDS]
        except (MalformedError, DecompressionError):
            return False
        is_supported = "charset" in status and len(offsets) < 2
        if inside:
            is_supported = (
                is_supported
                and "invoker" not in status
                and "sql_mode" in status
                and _ROW_CHANGE.match(parts.sql) is not None
            )
        elif parts.sql != b"BEGIN":
            return False
        if not is_supported or find_doubt(status, parts.sql) is not None or find_refusal(status) is not None:
            return False
        gap = offsets[0] if offsets else -1
        block = parts.status_vars if gap < 0 else parts.status_vars[:gap] + bytes(3) + parts.status_vars[gap + 3 :]
        request = QueryRequest(block, gap, inside)
        if inside:
            session = ScriptSession(variables={SQL_MODE: str(status["sql_mode"])})
            set_mode = b"".join(map(client.terminate_safe, session.repeat_sql_mode()))
            request = replace(request, has_escapes=not status["sql_mode"] & NO_BACKSLASH_ESCAPES, set_mode=set_mode)
        if request in self._query_requests or len(self._query_requests) == _MAX_QUERY_REQUESTS:
            return False
        self._query_requests.append(request)
        self._build_table()
        return True

    def add_row_flags(self, flags: int) -> bool:
        """Register the flags of a row event as a request; return False if they are already known."""
        if flags in self._row_flags or len(self._row_flags) == _MAX_ROW_REQUESTS:
            return False
        self._row_flags.append(flags)
        self._build_table()
        return True

    # -- the table -----------------------------------------------------------------------------------------------------

    def _assign_number(self, state: SessionState) -> int:
        """Return the number of a session, assigning one if needed; -1 if there are too many."""
        number = self._numbers.get(state, -1)
        if number < 0 and len(self.sessions) < _MAX_SESSIONS:
            number = self._numbers[state] = len(self.sessions)
            self.sessions.append(state)
        return number

    def _build_table(self) -> None:
        """Build the table of all transitions from all sessions; transitions may add further sessions."""
        transitions = list[tuple[int, bytes]]()
        requests: list[QueryRequest | int] = [*self._query_requests, *self._row_flags]
        index = 0
        while index < len(self.sessions):
            transitions += [self._build_transition(self.sessions[index], wish) for wish in requests]
            index += 1
        cells_at = 16 + 12 * len(requests)
        at = cells_at + 12 * len(transitions)
        numbers, texts = [len(self._query_requests), len(requests), cells_at, 0], list[bytes]()
        for begin in self._query_requests:
            numbers += [at, len(begin.block), begin.packed_flags]
            texts += [begin.block, begin.set_mode]
            at += len(begin.block) + len(begin.set_mode)
        numbers += [number for flags in self._row_flags for number in (flags, 0, 0)]
        for target, text in transitions:
            numbers += [target + 1, at, len(text)]
            texts.append(text)
            at += len(text)
        self.data = struct.pack(f">{len(numbers)}I", *numbers) + b"".join(texts) + _PAD

    def _build_transition(self, state: SessionState, request: QueryRequest | int) -> tuple[int, bytes]:
        """Return the session that a request leads to and the assignments; the session is -1 if kernels cannot go
        there.
        """
        variables, charset, sql_mode = state
        session = ScriptSession(variables=dict(variables), charset=charset, sql_mode=sql_mode)
        if isinstance(request, int):
            statements = session.set_for_rows(request, 0, self._description)
        else:
            session.variables[_THREAD] = "0"
            statements = session.set_for_query(
                QuerySession(decode_status_variables(request.block), 0, 0, request.inside), self._description
            )
            is_plain = client.terminate_statement(b"BEGIN", session.charset) == client.terminate_safe(b"BEGIN")
            if not is_plain or client.make_client_safe(b"BEGIN", session.charset, session.sql_mode)[1] is not None:
                return -1, b""
        text = statements[0][len(_SET) :] if statements else b""
        if (
            session.client_charset != UTF8MB4
            or len(statements) > 1
            or (statements and not statements[0].startswith(_SET))
            or len(text) > _MAX_ASSIGNMENT_BYTES
        ):
            return -1, b""
        return self._assign_number(_session_state(session)), text


_SET = b"SET "
_THREAD = "@@session.pseudo_thread_id"
_MICROSECONDS = (13, 128)
"""MySQL's and MariaDB's status variables."""

_ROW_CHANGE = re.compile(rb"(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)


def _session_state(session: ScriptSession) -> SessionState:
    """Return the state of a session without the variables that change with each transaction."""
    variables_set = tuple(
        sorted((name, value) for name, value in session.variables.items() if name not in TRANSACTION_VARIABLES)
    )
    return variables_set, session.charset, session.sql_mode


def enter_session(session: ScriptSession, state: SessionState) -> None:
    """Make the script's session have this state."""
    transaction_variables = {name: value for name, value in session.variables.items() if name in TRANSACTION_VARIABLES}
    variables, session.charset, session.sql_mode = state
    session.variables = dict(variables) | transaction_variables
    session.forget_last_query()
