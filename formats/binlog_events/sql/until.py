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
_LONGEST = 1 << 16
_PASSED = (b"TEMPORARY", b"IF", b"NOT", b"EXISTS")
_LISTS = (b"TABLE", b"TABLES", b"VIEW", b"DATABASE", b"SCHEMA", b"SEQUENCE", b"USER")


class Pattern:
    """Pattern of the statement that the user names.

    Raises:
        UsageError: it has no words.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._words = _joined(list(_words(text.encode("utf-8", "surrogateescape"))))
        if not self._words:
            raise UsageError(f"--stop-before {text!r}: no statement")
        self._first = self._words[0]

    def fits(self, sql: bytes, database: bytes) -> bool:
        """Return whether a statement matches the pattern."""
        words = _joined(list(_words(sql[:_LONGEST])))
        if not words or words[0] != self._first:
            return False
        wanted = self._words
        if _begins(words, wanted, database):
            return True
        is_list = len(wanted) == 3 and wanted[0] == b"DROP" and wanted[1] in _LISTS and words[1:2] == wanted[1:2]
        return is_list and any(_same(word, wanted[2], database) for word in words[2:])


def _begins(words: list[bytes], wanted: list[bytes], database: bytes) -> bool:
    """Return whether the words begin with those of the pattern."""
    return len(words) >= len(wanted) and all(_same(a, b, database) for a, b in zip(words, wanted, strict=False))


def _same(word: bytes, wanted: bytes, database: bytes) -> bool:
    """Return whether a word equals a word of the pattern."""
    return word == wanted or (b"." in wanted and b"%b.%b" % (database.upper(), word) == wanted)


def _words(sql: bytes) -> Iterator[bytes]:
    """Yield the words, names, strings and signs of a statement that are compared."""
    for found in _WORD.finditer(sql):
        name, text, word, sign = found.groups()
        if name is not None:
            yield name.replace(b"``", b"`").upper()
        elif word is not None and word.upper() not in _PASSED:
            yield word.upper()
        elif text is not None or sign is not None:
            yield text if text is not None else sign


def _joined(words: list[bytes]) -> list[bytes]:
    """Return the words with `a . b` as one word and without a semicolon at the end."""
    out: list[bytes] = []
    for word in words[:-1] if words[-1:] == [b";"] else words:
        if out and (word == b"." or out[-1].endswith(b".")):
            out[-1] += word
        else:
            out.append(word)
    return out
