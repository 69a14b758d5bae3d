"""Is a statement one like another? The rule of `--stop-before`, word by word.

Words are compared without regard to case, spaces, comments and quotation marks around names; `IF EXISTS`, `IF NOT
EXISTS` and `TEMPORARY` are passed over. A name `db.t` of the pattern also fits `t` where db is the default database.
All words of the pattern must stand at the start of the statement; behind DROP TABLE (VIEW, DATABASE …) its name may be
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
    """What the user names.

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
        """Is this statement one like it?"""
        words = _joined(list(_words(sql[:_LONGEST])))
        if not words or words[0] != self._first:
            return False
        wanted = self._words
        if _begins(words, wanted, database):
            return True
        is_list = len(wanted) == 3 and wanted[0] == b"DROP" and wanted[1] in _LISTS and words[1:2] == wanted[1:2]
        return is_list and any(_same(word, wanted[2], database) for word in words[2:])


def _begins(words: list[bytes], wanted: list[bytes], database: bytes) -> bool:
    return len(words) >= len(wanted) and all(_same(a, b, database) for a, b in zip(words, wanted, strict=False))


def _same(word: bytes, wanted: bytes, database: bytes) -> bool:
    return word == wanted or (b"." in wanted and b"%b.%b" % (database.upper(), word) == wanted)


def _words(sql: bytes) -> Iterator[bytes]:
    for found in _WORD.finditer(sql):
        name, text, word, sign = found.groups()
        if name is not None:
            yield name.replace(b"``", b"`").upper()
        elif word is not None and word.upper() not in _PASSED:
            yield word.upper()
        elif text is not None or sign is not None:
            yield text if text is not None else sign


def _joined(words: list[bytes]) -> list[bytes]:
    """`a . b` as one word; a semicolon at the end is none."""
    out: list[bytes] = []
    for word in words[:-1] if words[-1:] == [b";"] else words:
        if out and (word == b"." or out[-1].endswith(b".")):
            out[-1] += word
        else:
            out.append(word)
    return out
