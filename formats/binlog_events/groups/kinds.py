"""Classification of statements by their effect on the transaction.

Source: docs/spec/mysql_binlog.md#transactions-and-truncation.
"""

from __future__ import annotations

import enum
import zlib
from array import array
from functools import lru_cache

from binlogtool.formats.binlog_events.codes import EventType
from binlogtool.formats.binlog_events.events.places import DB_LEN_AT, QUERY_HEAD_SIZE, STATUS_LEN_AT
from binlogtool.formats.fields import kernel
from binlogtool.formats.kernel_types import Int64s, UInt8s


class QueryKind(enum.IntEnum):
    """Effect of a QUERY text on its group."""

    STATEMENT = 0
    BEGIN = 1
    COMMIT = 2
    ROLLBACK = 3
    SAVEPOINT = 4
    XA_START = 5
    XA_END = 6
    XA_FINISH = 7
    """XA COMMIT or XA ROLLBACK of a prepared transaction: a group of its own."""


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
"""Bytes at the beginning of a text that tell its kind: one behind the longest word, too."""

WORD_TABLE = array("q", [number for word, kind in STATEMENT_WORDS for number in (len(word), kind, *word)] + [0])
"""Size, kind and letters of each word, in the order in which they are tried; then 0."""

_UNDOING_KINDS = (QueryKind.ROLLBACK, QueryKind.SAVEPOINT, QueryKind.XA_FINISH)
WORD_TABLE_WITHOUT_ROLLBACK = array(
    "q", [n for word, kind in STATEMENT_WORDS if kind not in _UNDOING_KINDS for n in (len(word), kind, *word)] + [0]
)
"""The same without those that may take rows back: such a text is like any other."""

SMALL_A, SMALL_Z, CAPITAL_A, CAPITAL_Z, DIGIT_0, DIGIT_9 = b"azAZ09"


@kernel()
def starts_with_word(words: Int64s, at: int, size: int, buf: UInt8s, p: int, n: int) -> bool:
    """Return whether `buf[p:n]` begins with this word, in any case, and the word ends there."""
    if n - p < size:
        return False
    for i in range(size):
        character = buf[p + i] + 0
        if character >= SMALL_A and character <= SMALL_Z:
            character += CAPITAL_A - SMALL_A
        if character != words[at + i]:
            return False
    if n - p == size:
        return True
    character = buf[p + size] + 0
    is_letter = (character >= CAPITAL_A and character <= CAPITAL_Z) or (character >= SMALL_A and character <= SMALL_Z)
    return not (is_letter or (character >= DIGIT_0 and character <= DIGIT_9))


@kernel(starts_with_word)
def classify_text(words: Int64s, buf: UInt8s, p: int, n: int) -> int:
    """Return the `QueryKind` of the text `buf[p:n]`; words: `WORD_TABLE`."""
    at = 0
    while words[at] != 0:
        if starts_with_word(words, at + 2, words[at] + 0, buf, p, n):
            return words[at + 1] + 0
        at += 2 + words[at]
    return 0


@kernel(classify_text)
def classify_query(words: Int64s, buf: UInt8s, p: int, n: int) -> int:
    """Return the `QueryKind` of a QUERY with the body `buf[p:n]`."""
    if n - p < QUERY_HEAD_SIZE:
        return 0
    start = p + QUERY_HEAD_SIZE + 1 + buf[p + DB_LEN_AT] + (buf[p + STATUS_LEN_AT] | buf[p + STATUS_LEN_AT + 1] << 8)
    return classify_text(words, buf, start, n) if start < n else 0


@lru_cache(maxsize=1024)
def _classify_cached(start: bytes) -> QueryKind:
    """Return the kind of a text by its beginning."""
    return QueryKind(classify_text(WORD_TABLE, start, 0, len(start)))


def get_text_kind(text: bytes) -> QueryKind:
    """Return the kind of a statement; the first `MAX_WORD_SIZE` bytes of its text suffice."""
    if not text or text[0] not in _FIRST_LETTERS:
        return QueryKind.STATEMENT
    return _classify_cached(text[:MAX_WORD_SIZE])


def get_query_kind(code: int, body: bytes | memoryview) -> QueryKind:
    """Return the kind of a QUERY or QUERY_COMPRESSED event by the beginning of its text."""
    if len(body) < QUERY_HEAD_SIZE:
        return QueryKind.STATEMENT
    at = QUERY_HEAD_SIZE + 1 + body[DB_LEN_AT] + (body[STATUS_LEN_AT] | body[STATUS_LEN_AT + 1] << 8)
    if code == EventType.QUERY_COMPRESSED:
        return get_text_kind(_uncompress_start(bytes(body[at : at + 16 * MAX_WORD_SIZE])))
    return get_text_kind(bytes(body[at : at + MAX_WORD_SIZE]))


def _uncompress_start(block: bytes) -> bytes:
    """Return the first bytes of a compressed text; empty if it cannot be uncompressed."""
    size = block[0] & 7 if block else 0
    try:
        return zlib.decompressobj().decompress(block[1 + size :], MAX_WORD_SIZE)
    except zlib.error:
        return b""
