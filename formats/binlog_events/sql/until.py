"""The rule of `--stop-before`: compare a statement with a pattern word by word.

Case, spaces, comments and quotation marks around names are ignored, and so are `IF EXISTS`, `IF NOT EXISTS`
and `TEMPORARY`. A name `db.t` of the pattern also matches `t` where db is the default database. All words
of the pattern must be at the start of the statement; after DROP TABLE (VIEW, DATABASE …) its name may be
any of those in the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from binlogtool.errors import UsageError

_WORD = re.compile(
    rb"(?:\s+|--[\s][^\n]*|\#[^\n]*|/\*(?!M?!).*?(?:\*/|\Z)|/\*M?!\d*|\*/)"
    rb"|`([^`]*(?:``[^`]*)*)(?:`|\Z)"
    rb"|('[^'\\]*(?:(?:\\(?:.|\Z)|'')[^'\\]*)*(?:'|\Z)|\"[^\"\\]*(?:(?:\\(?:.|\Z)|\"\")[^\"\\]*)*(?:\"|\Z))"
    rb"|([\w$\x80-\xff]+)|(.)",
    re.DOTALL,
)
_MAX_BYTES = 1 << 16
_IGNORED_WORDS = (b"TEMPORARY", b"IF", b"NOT", b"EXISTS")
_LIST_OBJECTS = (b"TABLE", b"TABLES", b"VIEW", b"DATABASE", b"SCHEMA", b"SEQUENCE", b"USER")


class StatementPattern:
    """Pattern of the statement that the user names.

    Raises:
        UsageError: it has no words.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = _join_qualified_names(list(_iter_words(text.encode("utf-8", "surrogateescape"))))
        if not self._words:
            raise UsageError(f"--stop-before {text!r}: no statement")
        self._first = self._words[0]

    def matches(self, sql: bytes, database: bytes) -> bool:
        """Return whether a statement matches the pattern."""
        words = _join_qualified_names(list(_iter_words(sql[:_MAX_BYTES])))
        if not words or words[0] != self._first:
            return False
        pattern = self._words
        if _starts_with(words, pattern, database):
            return True
        is_list = (
            len(pattern) == 3 and pattern[0] == b"DROP" and pattern[1] in _LIST_OBJECTS and words[1:2] == pattern[1:2]
        )
        return is_list and any(_is_same_word(word, pattern[2], database) for word in words[2:])


def _starts_with(words: list[bytes], pattern: list[bytes], database: bytes) -> bool:
    """Return whether the words begin with those of the pattern."""
    return len(words) >= len(pattern) and all(
        _is_same_word(a, b, database) for a, b in zip(words, pattern, strict=False)
    )


def _is_same_word(word: bytes, pattern_word: bytes, database: bytes) -> bool:
    """Return whether a word equals a word of the pattern."""
    return word == pattern_word or (b"." in pattern_word and b"%b.%b" % (database.upper(), word) == pattern_word)


def _iter_words(sql: bytes) -> Iterator[bytes]:
    """Yield the words, names, strings and signs of a statement that are compared."""
    for match in _WORD.finditer(sql):
        name, text, word, sign = match.groups()
        if name is not None:
            yield name.replace(b"``", b"`").upper()
        elif word is not None and word.upper() not in _IGNORED_WORDS:
            yield word.upper()
        elif text is not None or sign is not None:
            yield text if text is not None else sign


def _join_qualified_names(words: list[bytes]) -> list[bytes]:
    """Return the words with `a . b` as one word and without a semicolon at the end."""
    result: list[bytes] = []
    for word in words[:-1] if words[-1:] == [b";"] else words:
        if result and (word == b"." or result[-1].endswith(b".")):
            result[-1] += word
        else:
            result.append(word)
    return result
