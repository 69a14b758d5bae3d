"""Escape, colour, measure and fold text for a terminal."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable

# --- Escaping ---

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Invisible characters: Default_Ignorable_Code_Point (DerivedCoreProperties.txt of Unicode 16)."""

_SHORT_ESCAPES = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escape(text: str) -> str:
    """Return the text on one line, with characters that are not plainly printable as `\\x1b`, `\\u202e`, `\\U000e0041`.

    Covers C0, DEL, C1, bidirectional controls, zero-width characters, line and paragraph separators and lone
    surrogates; a byte that was kept as a surrogate (`surrogateescape`) is shown as that byte.
    """
    if text.isprintable() and (text.isascii() or not _IGNORABLE.search(text)):
        return text
    return "".join(map(_escape_character, text))


def _escape_character(char: str) -> str:
    if char.isprintable() and not _IGNORABLE.match(char):
        return char
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape_json(text: str) -> str:
    """Escape invisible characters in JSON as Unicode escapes, which is the same JSON."""
    return text if text.isascii() else _IGNORABLE.sub(_escape_json_match, text)


def _escape_json_match(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


# --- Colours for lines of text that is already escaped ---

_CODES = {"good": "32", "warning": "33", "error": "31;1", "note": "36", "dim": "2"}


def make_painter(colour: bool) -> Callable[[str, str], str]:
    """Return a function (text, style name) -> text with colour, or unchanged."""
    return _paint if colour else _leave_plain


def _paint(text: str, style: str) -> str:
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def _leave_plain(text: str, _style: str) -> str:
    return text


# --- Terminal properties ---

MIN_COLUMNS = 20
"""Minimum width; fewer columns are treated as this number."""

_COLOR_CODE = re.compile("\x1b\\[[0-9;]*m")
_CODE_OR_CHARACTER = re.compile("\x1b\\[[0-9;]*m|.", re.DOTALL)
_WORDS = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+|\s+""")
"""Pattern of words as a shell splits them (quoted text is not split), and of blanks."""

_COMMAND = re.compile(r"(?:\w+:? +| {10,12})(?:binlogtool|python3|cp|mv) ")
"""Pattern of lines with a command to copy: `next: binlogtool ...`, `undo   binlogtool ...`, or only the command."""


def terminal_columns() -> int:
    """Return the width of the terminal at standard output (`COLUMNS` takes precedence); 80 if it is unknown."""
    try:
        return max(MIN_COLUMNS, int(os.environ["COLUMNS"]))
    except (KeyError, ValueError):
        pass
    try:
        return max(MIN_COLUMNS, os.get_terminal_size(sys.stdout.fileno()).columns or 80)
    except (OSError, ValueError, AttributeError):
        return 80


def count_columns(text: str) -> int:
    """Return the number of columns of a text without colour codes: wide characters take two, combining marks none."""
    text = _COLOR_CODE.sub("", text) if "\x1b" in text else text
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )  # fmt: skip


def fold_line(line: str, width: int) -> list[str]:
    """Fold a line at blanks into lines of at most `width` columns; all lines but the first are indented.

    A command to copy gets a backslash at each fold, and its words are never split; other words that are too long for a
    line are split.
    """
    if count_columns(line) <= width:
        return [line]
    is_command = _COMMAND.match(line) is not None
    indent_width = len(line) - len(line.lstrip(" "))
    indent, end = " " * min(indent_width + 4, width // 3), " \\" if is_command else ""
    lines, blank = [" " * indent_width], ""
    for word in _WORDS.findall(line[indent_width:]):
        if word.isspace():
            blank = word
            continue
        if lines[-1].strip() and count_columns(lines[-1]) + len(blank) + count_columns(word) > width - len(end):
            lines[-1] += end
            lines.append(indent)
            blank = ""
        pieces = (
            [word]
            if is_command
            else _split_word(word, width - count_columns(lines[-1]) - len(blank), width - len(indent))
        )
        lines[-1] += blank + pieces[0]
        lines += [indent + piece for piece in pieces[1:]]
        blank = ""
    return lines


def _split_word(word: str, first_width: int, other_width: int) -> list[str]:
    """Split a word that is longer than a line, before a path separator if there is one near the end of the line."""
    pieces = [word]
    while count_columns(pieces[-1]) > (width := first_width if len(pieces) == 1 else other_width):
        text, taken = pieces.pop(), ""
        for part in _CODE_OR_CHARACTER.findall(text):
            if count_columns(taken) + count_columns(part) > width:
                break
            taken += part
        at = taken.rfind("/") if "/" in text else max(taken.rfind("."), taken.rfind("["))
        cut = at if at > len(taken) // 2 else max(1, len(taken))
        pieces += [text[:cut], text[cut:]]
    return pieces


def fold_column(text: str, width: int) -> list[str]:
    """Fold a text into the lines of a column, without indentation."""
    lines = fold_line(text, width)
    return [lines[0], *(line.lstrip(" ") for line in lines[1:])]


def can_draw_boxes(encoding: str, is_terminal: bool) -> bool:
    """Return True if box-drawing characters can be shown.

    They cannot if the encoding lacks them, or on a terminal with the C locale (where Python writes UTF-8, whatever the
    terminal supports).
    """
    try:
        "│─…·".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return not (is_terminal and _is_c_locale())


def _is_c_locale() -> bool:
    locale_name = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or "C"
    is_coerced = (
        locale_name == "C.UTF-8" and not os.environ.get("LC_ALL") and os.environ.get("LANG", "C") in ("C", "POSIX", "")
    )
    is_overridden = os.environ.get("PYTHONUTF8") == "1" or "PYTHONIOENCODING" in os.environ
    return (locale_name in ("C", "POSIX") or is_coerced) and not is_overridden
