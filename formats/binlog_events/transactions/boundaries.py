"""Find the boundaries of transactions: which event opens, continues or ends a group of events.

All readers, compiled or not, use the rules of this module. The state machine (`compute_packed_group_step`) reads no
bytes, only the
mark of an event (`get_mark`). MySQL's rule is its Transaction_boundary_parser (sql/rpl_trx_boundary_parser.cc),
MariaDB's are is_group_event and is_part_of_group (sql/log_event.h). See
docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

import enum
import re
import zlib
from array import array
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from binlogtool.format_api.schema_fields import Int64s, UInt8s, kernel
from binlogtool.formats.binlog_events.event_schemas import find_query_text
from binlogtool.formats.binlog_events.gtid.gtid_events import FLAGS2
from binlogtool.formats.binlog_events.wire_format import (
    GTID_EVENTS,
    MYSQL_GTID_EVENTS,
    QUERY_EVENTS,
    ROW_EVENTS,
    STATEMENT_EVENTS,
    STMT_END,
    EventType,
)

# --- Classification of statements by their effect on the transaction ---


class QueryKind(enum.IntEnum):
    """Effect of a QUERY's text on its group."""

    STATEMENT = 0
    BEGIN = 1
    COMMIT = 2
    ROLLBACK = 3
    SAVEPOINT = 4
    XA_START = 5
    XA_END = 6
    XA_FINISH = 7
    """XA COMMIT or XA ROLLBACK of a prepared transaction: a group by itself."""


STATEMENT_WORDS = (
    (b"BEGIN", QueryKind.BEGIN),
    (b"COMMIT", QueryKind.COMMIT),
    (b"ROLLBACK TO", QueryKind.SAVEPOINT),
    (b"ROLLBACK", QueryKind.ROLLBACK),
    (b"SAVEPOINT", QueryKind.SAVEPOINT),
    (b"RELEASE SAVEPOINT", QueryKind.SAVEPOINT),
    (b"START TRANSACTION", QueryKind.BEGIN),
    (b"XA START", QueryKind.XA_START),
    (b"XA BEGIN", QueryKind.XA_START),
    (b"XA END", QueryKind.XA_END),
    (b"XA PREPARE", QueryKind.XA_END),
    (b"XA COMMIT", QueryKind.XA_FINISH),
    (b"XA ROLLBACK", QueryKind.XA_FINISH),
)
_FIRST_LETTERS = frozenset(letter for word, _ in STATEMENT_WORDS for letter in (word[0], word[0] | 0x20))

MAX_WORD_SIZE = 1 + max(len(word) for word, _ in STATEMENT_WORDS)
"""Number of leading bytes that decide the kind of a text: the longest word plus one."""

WORD_TABLE = array("q", [number for word, kind in STATEMENT_WORDS for number in (len(word), kind, *word)] + [0])
"""Size, kind and letters of each word, in the order of comparison; then 0."""

_UNDOING_KINDS = (QueryKind.ROLLBACK, QueryKind.SAVEPOINT, QueryKind.XA_FINISH)
WORD_TABLE_WITHOUT_ROLLBACK = array(
    "q", [n for word, kind in STATEMENT_WORDS if kind not in _UNDOING_KINDS for n in (len(word), kind, *word)] + [0]
)
"""`WORD_TABLE` without the words that may roll back rows, which then count as ordinary statements."""

SMALL_A, SMALL_Z, CAPITAL_A, CAPITAL_Z, DIGIT_0, DIGIT_9 = b"azAZ09"


@kernel()
def starts_with_word(words: Int64s, at: int, size: int, buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether `buf[pos:limit]` begins with this word, in any case, and the word ends there."""
    if limit - pos < size:
        return False
    for i in range(size):
        character = buf[pos + i] + 0
        if character >= SMALL_A and character <= SMALL_Z:
            character += CAPITAL_A - SMALL_A
        if character != words[at + i]:
            return False
    if limit - pos == size:
        return True
    character = buf[pos + size] + 0
    is_letter = (character >= CAPITAL_A and character <= CAPITAL_Z) or (character >= SMALL_A and character <= SMALL_Z)
    return not (is_letter or (character >= DIGIT_0 and character <= DIGIT_9))


@kernel(starts_with_word)
def classify_statement_text(words: Int64s, buf: UInt8s, pos: int, limit: int) -> int:
    """Return the `QueryKind` of the text `buf[pos:limit]`; words: `WORD_TABLE`."""
    at = 0
    while words[at] != 0:
        if starts_with_word(words, at + 2, words[at] + 0, buf, pos, limit):
            return words[at + 1] + 0
        at += 2 + words[at]
    return 0


@kernel(classify_statement_text, find_query_text)
def classify_query_body(words: Int64s, buf: UInt8s, pos: int, limit: int) -> int:
    """Return the `QueryKind` of a QUERY with the body `buf[pos:limit]`."""
    start, end = find_query_text(buf, pos, limit)
    return classify_statement_text(words, buf, start, limit) if end >= 0 and start < limit else 0


@kernel()
def is_begin(buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether the text `buf[pos:limit]` is BEGIN."""
    if limit - pos != 5 or buf[pos] != 66 or buf[pos + 1] != 69 or buf[pos + 2] != 71:
        return False
    return buf[pos + 3] == 73 and buf[pos + 4] == 78


@lru_cache(maxsize=1024)
def _classify_cached(start: bytes) -> QueryKind:
    """Return the kind of a text by its beginning."""
    return QueryKind(classify_statement_text(WORD_TABLE, start, 0, len(start)))


def get_statement_text_kind(text: bytes) -> QueryKind:
    """Return the kind of a statement; the first `MAX_WORD_SIZE` bytes of its text are enough."""
    if not text or text[0] not in _FIRST_LETTERS:
        return QueryKind.STATEMENT
    return _classify_cached(text[:MAX_WORD_SIZE])


def get_query_kind(type_code: int, body: bytes | memoryview) -> QueryKind:
    """Return the kind of a QUERY or QUERY_COMPRESSED event by the beginning of its text."""
    at, end = find_query_text(body, 0, len(body))
    if end < 0:
        return QueryKind.STATEMENT
    if type_code == EventType.QUERY_COMPRESSED:
        return get_statement_text_kind(_uncompress_text_start(bytes(body[at : at + 16 * MAX_WORD_SIZE])))
    return get_statement_text_kind(bytes(body[at : at + MAX_WORD_SIZE]))


def _uncompress_text_start(compressed_block: bytes) -> bytes:
    """Return the first bytes of a compressed text; empty if it cannot be uncompressed."""
    size = compressed_block[0] & 7 if compressed_block else 0
    try:
        return zlib.decompressobj().decompress(compressed_block[1 + size :], MAX_WORD_SIZE)
    except zlib.error:
        return b""


# --- Prefilter of QUERY events that may be DDL ---


@kernel(find_query_text)
def is_possible_ddl(buf: UInt8s, pos: int, limit: int) -> bool:
    """Return whether the QUERY body `buf[pos:limit]` may create, change or drop a table, judging by its first letters.

    Accepted are the letters of CREATE, DROP, TRUNCATE, ALTER, RENAME, SET (STATEMENT), and the start of a comment.
    """
    at, end = find_query_text(buf, pos, limit)
    if end < 0:
        return False
    while at < limit - 2 and (buf[at] == 32 or (buf[at] >= 9 and buf[at] <= 13)):
        at += 1
    if at >= limit - 2:
        return False
    first, second, third = buf[at] + 0, buf[at + 1] & 223, buf[at + 2] & 223
    if first == 47 or first == 35 or first == 45 or first == 40:
        return True
    first &= 223
    if first == 82:
        return bool(second == 69 and third == 78)
    if first == 83:
        return bool(second == 69 and third == 84)
    if first == 65:
        return bool(second == 76)
    return bool((first == 67 or first == 68 or first == 84) and second == 82)


# --- State machine of transactions ---

# State of the open group.
NO_GROUP, AFTER_GTID, BEGUN, ONE_STATEMENT = range(4)
"""AFTER_GTID: after MySQL's GTID; a BEGIN or a single statement follows. BEGUN: in a transaction, up to its commit.
ONE_STATEMENT: after MariaDB's GTID with the flag STANDALONE, up to the end of its only statement."""

# Mark of an event: its role in groups.
(
    OTHER,
    OUTSIDE_GROUPS,
    INCIDENT,
    MYSQL_GTID,
    MARIADB_GTID,
    MARIADB_STANDALONE_GTID,
    NEVER_LAST,
    ROW_EVENT,
    LAST_ROW_EVENT,
    COMMIT_EVENT,
    OTHER_END,
) = range(11)
"""OUTSIDE_GROUPS: between groups. MARIADB_GTID, MARIADB_STANDALONE_GTID: without and with the flag STANDALONE.
NEVER_LAST: never the last event of a statement. LAST_ROW_EVENT: with the flag STMT_END. COMMIT_EVENT: XID. OTHER_END:
another end of a transaction, which may also directly follow a GTID."""

STATEMENT = 16
"""Offset of statement marks: the mark of a statement is this number plus its `QueryKind`."""

MARK_COUNT = STATEMENT + len(QueryKind)

# Step of an event in its group.
OUTSIDE, OPENS, INSIDE, ENDS, ALONE = range(5)
"""Values of `GroupStep` as plain numbers, for kernels."""

# Nesting rule that an event breaks.
NO_FAULT, GTID_IN_GROUP, OUTER_EVENT_IN_GROUP, BEGIN_IN_TRANSACTION, END_OUTSIDE_TRANSACTION = range(5)

GROUP_BITS, STEP_AT, FAULT_AT = 3, 2, 5
"""Parts of the result of `compute_packed_group_step`: mask of the group after the event; shift of the step (3 bits);
shift of the broken rule.
"""
STEP_BITS = 7

BEGIN, COMMIT, ROLLBACK = QueryKind.BEGIN.value, QueryKind.COMMIT.value, QueryKind.ROLLBACK.value
SAVEPOINT, XA_START, XA_END = QueryKind.SAVEPOINT.value, QueryKind.XA_START.value, QueryKind.XA_END.value


@kernel()
def pack_step(group_state: int, role: int, fault: int) -> int:
    """Return group, step and fault as one number."""
    return group_state | role << STEP_AT | fault << FAULT_AT


@kernel(pack_step)
def pack_group_end(group_state: int, fault: int) -> int:
    """Return the step of an event that ends a group, or is a group by itself."""
    return pack_step(NO_GROUP, ENDS if group_state != NO_GROUP else ALONE, fault)


@kernel(pack_group_end, pack_step)
def compute_packed_statement_step(group_state: int, kind: int) -> int:
    """Return the step of a statement; an ordinary statement is a group by itself if no group is open."""
    outside = END_OUTSIDE_TRANSACTION if group_state != BEGUN else NO_FAULT
    if kind == BEGIN or kind == XA_START:  # noqa: SIM109 - a kernel
        return pack_step(
            BEGUN,
            INSIDE if group_state != NO_GROUP else OPENS,
            BEGIN_IN_TRANSACTION if group_state == BEGUN else NO_FAULT,
        )
    if kind == SAVEPOINT or kind == XA_END:  # noqa: SIM109 - a kernel
        return pack_step(group_state, INSIDE if group_state != NO_GROUP else ALONE, outside)
    if kind == COMMIT or kind == ROLLBACK:  # noqa: SIM109 - a kernel
        return pack_group_end(group_state, outside)
    if kind == 0 and group_state == BEGUN:
        return pack_step(BEGUN, INSIDE, NO_FAULT)
    return pack_group_end(group_state, NO_FAULT)


@kernel(pack_group_end, pack_step, compute_packed_statement_step)
def compute_packed_group_step(group_state: int, event_mark: int) -> int:
    """Return the group after an event with this mark, its step, and the rule that it breaks, as from `pack_step`."""
    if event_mark >= STATEMENT:
        return compute_packed_statement_step(group_state, event_mark - STATEMENT)
    if event_mark == MYSQL_GTID or event_mark == MARIADB_GTID or event_mark == MARIADB_STANDALONE_GTID:  # noqa: SIM109 - a kernel
        new_group = AFTER_GTID if event_mark == MYSQL_GTID else BEGUN if event_mark == MARIADB_GTID else ONE_STATEMENT
        return pack_step(new_group, OPENS, GTID_IN_GROUP if group_state != NO_GROUP else NO_FAULT)
    if (
        event_mark == INCIDENT and group_state == AFTER_GTID
    ):  # MySQL gives an INCIDENT its own GTID, so that it can be skipped
        return pack_group_end(group_state, NO_FAULT)
    if event_mark == OUTSIDE_GROUPS or event_mark == INCIDENT:  # noqa: SIM109 - a kernel
        return pack_step(group_state, OUTSIDE, OUTER_EVENT_IN_GROUP if group_state != NO_GROUP else NO_FAULT)
    if event_mark == COMMIT_EVENT:
        return pack_group_end(group_state, END_OUTSIDE_TRANSACTION if group_state != BEGUN else NO_FAULT)
    if event_mark == OTHER_END:
        return pack_group_end(group_state, END_OUTSIDE_TRANSACTION if group_state == NO_GROUP else NO_FAULT)
    if group_state == NO_GROUP:
        return pack_step(NO_GROUP, ALONE if event_mark == OTHER else OUTSIDE, NO_FAULT)
    if group_state == ONE_STATEMENT and (event_mark == OTHER or event_mark == LAST_ROW_EVENT):  # noqa: SIM109 - a kernel
        return pack_group_end(group_state, NO_FAULT)
    return pack_step(group_state, INSIDE, NO_FAULT)


@kernel()
def is_transaction_begin_step(step_result: int) -> bool:
    """Return whether a transaction begins with this step, even if the previous transaction has no end."""
    return step_result >> STEP_AT & STEP_BITS == OPENS or step_result >> FAULT_AT == BEGIN_IN_TRANSACTION


STEP_TABLE = tuple(compute_packed_group_step(group, mark) for mark in range(MARK_COUNT) for group in range(4))
"""Table of all results of `compute_packed_group_step`; the result for a mark and a group is at `4 * mark + group`."""


def get_next_group_state(group_state: int, event_mark: int) -> int:
    """Return the group after an event that breaks no rule."""
    result = STEP_TABLE[4 * event_mark + group_state]
    assert result >> FAULT_AT == NO_FAULT
    return result & GROUP_BITS


# --- Marks of events ---

_T = EventType

EVENTS_OUTSIDE_GROUPS = frozenset(
    {
        _T.START_V3, _T.SLAVE, _T.FORMAT_DESCRIPTION, _T.PREVIOUS_GTIDS, _T.GTID_LIST, _T.BINLOG_CHECKPOINT,
        _T.START_ENCRYPTION, _T.ROTATE, _T.STOP, _T.INCIDENT, _T.HEARTBEAT, _T.HEARTBEAT_V2,
    }
)  # fmt: skip
"""Events outside groups: the end of each is a boundary. An INCIDENT may have its own GTID."""

EVENTS_BEFORE_STATEMENT_END = (
    frozenset({_T.INTVAR, _T.RAND, _T.USER_VAR, _T.TABLE_MAP, _T.ANNOTATE_ROWS, _T.ROWS_QUERY}) | GTID_EVENTS
)
"""Events that never end a one-statement group."""

EVENTS_ENDING_TRANSACTIONS = frozenset({_T.XID, _T.XA_PREPARE, _T.TRANSACTION_PAYLOAD})

STANDALONE = 1
"""Bit of flags2 of MariaDB's GTID: no commit event follows."""

ROW_FLAGS_AT = 6
"""Offset of a row event's flags in the body, after the table id of servers that have one-statement groups."""

# Traits of an event type: its mark, and additional bits
MARK_MASK = 31
IS_GTID, IS_QUERY, IS_ROWS, IS_MAP, NEEDS_TRACKER = 32, 64, 128, 256, 512
"""NEEDS_TRACKER: the kernel does not support events of this type."""

_EVENTS_BY_MARK = {
    NEVER_LAST: EVENTS_BEFORE_STATEMENT_END,
    OUTSIDE_GROUPS: EVENTS_OUTSIDE_GROUPS,
    INCIDENT: {_T.INCIDENT},
    MYSQL_GTID: MYSQL_GTID_EVENTS,
    MARIADB_GTID: {_T.GTID},
    ROW_EVENT: ROW_EVENTS,
    COMMIT_EVENT: {_T.XID},
    OTHER_END: {_T.XA_PREPARE, _T.TRANSACTION_PAYLOAD},
    STATEMENT: STATEMENT_EVENTS,
}
"""Event types by mark; later entries override earlier ones."""

_EVENTS_BY_TRAIT: Mapping[int, Iterable[int]] = {
    IS_GTID: GTID_EVENTS,
    IS_QUERY: {_T.QUERY},
    IS_ROWS: ROW_EVENTS,
    IS_MAP: {_T.TABLE_MAP},
}


def build_event_type_traits(unsupported: Iterable[int]) -> array[int]:
    """Return the traits of all event types; `unsupported`: types that the kernel does not support."""
    table = array("q", bytes(8 * 256))
    for mark, codes in _EVENTS_BY_MARK.items():
        for code in codes:
            table[code] = mark
    for trait, chosen in (*_EVENTS_BY_TRAIT.items(), (NEEDS_TRACKER, unsupported)):
        for number in chosen:
            table[number] |= trait
    return table


@kernel(classify_query_body)
def get_event_mark(type_traits: int, words: Int64s, buf: UInt8s, pos: int, limit: int) -> int:
    """Return the mark of an event with the body `buf[pos:limit]`; a QUERY_COMPRESSED gets the mark of any statement."""
    mark = type_traits & MARK_MASK
    if type_traits & IS_ROWS:
        return LAST_ROW_EVENT if limit - pos > ROW_FLAGS_AT + 1 and buf[pos + ROW_FLAGS_AT] & STMT_END else mark
    if type_traits & IS_QUERY:
        return mark + classify_query_body(words, buf, pos, limit)
    if mark == MARIADB_GTID and limit - pos > FLAGS2 and buf[pos + FLAGS2] & STANDALONE:
        return MARIADB_STANDALONE_GTID
    return mark


# --- Transactions as groups of events, tracked event by event ---


class GroupStep(enum.IntEnum):
    """Role of an event in the groups of its log."""

    OUTSIDE = OUTSIDE
    OPENS = OPENS
    INSIDE = INSIDE
    ENDS = ENDS
    """Last event of the group."""
    ALONE = ALONE
    """A statement that is a group by itself, without a GTID before it."""


_STEPS = tuple(GroupStep)
_TRAITS = tuple(build_event_type_traits(()))
_FAULT_MESSAGES: Mapping[int, str] = {
    GTID_IN_GROUP: "a group starts inside another one",
    OUTER_EVENT_IN_GROUP: "{} inside a group",
    BEGIN_IN_TRANSACTION: "a transaction begins inside another one",
    END_OUTSIDE_TRANSACTION: "{} outside a transaction",
}


class TransactionGroupState(msgspec.Struct):
    """State of the open group.

    `group`: state of the open group (NO_GROUP, …). `fault`: text about the nesting rule that the last event broke, else
    None.
    """

    group: int = NO_GROUP
    fault: str | None = msgspec.field(default=None)
    _last_step: int = 0

    @property
    def is_open(self) -> bool:
        """True if a group is open."""
        return self.group != NO_GROUP

    @property
    def is_begun(self) -> bool:
        """True if a transaction is open, up to its commit."""
        return self.group == BEGUN

    @property
    def has_begun_now(self) -> bool:
        """True if a transaction began with the last event, even if the previous transaction has no end."""
        return is_transaction_begin_step(self._last_step)

    def advance_to_event(self, type_code: int, body: bytes | memoryview) -> GroupStep:
        """Update the state by the next event, and return its step; `body`: its bytes without header and checksum."""
        mark = _classify_event_mark(type_code, body)
        result = self._last_step = STEP_TABLE[mark << 2 | self.group]
        self.group = result & GROUP_BITS
        self.fault = (
            None if result >> FAULT_AT == NO_FAULT else _describe_nesting_fault(result >> FAULT_AT, type_code, mark)
        )
        return _STEPS[result >> STEP_AT & STEP_BITS]

    def reset(self) -> None:
        """Forget the open group, because a part of the log was skipped."""
        self.group = NO_GROUP


def _classify_event_mark(type_code: int, body: bytes | memoryview) -> int:
    if type_code in QUERY_EVENTS:
        return STATEMENT + get_query_kind(type_code, body)
    trait = _TRAITS[type_code]
    if trait & IS_ROWS or type_code == EventType.GTID:
        return get_event_mark(trait, WORD_TABLE, body, 0, len(body))
    return trait & MARK_MASK


def _describe_nesting_fault(fault: int, type_code: int, mark: int) -> str:
    """Return the message for a broken nesting rule."""
    name = EventType(type_code).name if mark < STATEMENT else QueryKind(mark - STATEMENT).name
    return _FAULT_MESSAGES[fault].format(name)


# --- XA transactions ---

_XA_FINISH = re.compile(
    rb"XA\s+(?:(COMMIT)|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(-?\d+)\s*(?:ONE PHASE\s*)?\Z", re.IGNORECASE
)


class XaId(NamedTuple):
    """Identifier of an XA transaction (XID)."""

    format_id: int
    gtrid: bytes
    bqual: bytes

    @property
    def text(self) -> str:
        """The identifier as servers log it and as statements contain it."""
        return f"X'{self.gtrid.hex()}',X'{self.bqual.hex()}',{self.format_id}"


class XaFinish(NamedTuple):
    """XA COMMIT or XA ROLLBACK of a prepared transaction."""

    xa_id: XaId
    is_commit: bool


def parse_xa_finish(sql: bytes) -> XaFinish | None:
    """Parse XA COMMIT or XA ROLLBACK; None if the statement names no transaction."""
    match = _XA_FINISH.match(sql.strip())
    if match is None or len(match[2]) % 2 or len(match[3]) % 2:
        return None
    gtrid, bqual = (bytes.fromhex(match[part].decode()) for part in (2, 3))
    return XaFinish(XaId(int(match[4]), gtrid, bqual), match[1] is not None)


class XaStates(msgspec.Struct):
    """Prepared and finished XA transactions of a log, at most `limit` of them."""

    limit: int
    _prepared: dict[XaId, bool] = msgspec.field(default_factory=dict)

    def record_prepare_and_find_fault(self, xa_id: XaId, *, one_phase: bool) -> str | None:
        """Record XA_PREPARE, a commit if it is `one_phase`; return a message about a fault, else None."""
        fault = f"XA transaction {xa_id.text} is prepared twice" if self._prepared.get(xa_id) else None
        self._store_xa_state(xa_id, not one_phase)
        return fault

    def record_finish_and_find_fault(self, xa_id: XaId) -> str | None:
        """Record XA COMMIT or XA ROLLBACK; return a message about a fault, else None."""
        fault = f"XA transaction {xa_id.text} is finished twice" if self._prepared.get(xa_id) is False else None
        self._store_xa_state(xa_id, False)
        return fault

    def _store_xa_state(self, xa_id: XaId, is_prepared: bool) -> None:
        if len(self._prepared) >= self.limit:
            self._prepared.clear()
        self._prepared[xa_id] = is_prepared
