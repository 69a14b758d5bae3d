"""Terminal properties: width, columns that a text takes, and folding of lines."""

from __future__ import annotations

import os
import re
import sys
import unicodedata

MIN_COLUMNS = 20
"""Columns below which nothing is fitted any more."""

_COLOR_CODE = re.compile("\x1b\\[[0-9;]*m")
_CODE_OR_CHARACTER = re.compile("\x1b\\[[0-9;]*m|.", re.DOTALL)
_WORDS = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+|\s+""")
"""Words, as a shell sees them: what is in quotes is not parted; and blanks."""

_COMMAND = re.compile(r"\w+: +binlogtool |\w+ +binlogtool ")
"""Lines that hold a command to be pasted: `next: binlogtool ...`, `undo   binlogtool ...`."""


def terminal_columns() -> int:
    """Return the width of the terminal at standard output (`COLUMNS` has precedence); 80 where it is unknown."""
    try:
        return max(MIN_COLUMNS, int(os.environ["COLUMNS"]))
    except (KeyError, ValueError):
        pass
    try:
        return max(MIN_COLUMNS, os.get_terminal_size(sys.stdout.fileno()).columns or 80)
    except (OSError, ValueError, AttributeError):
        return 80


def count_columns(text: str) -> int:
    """Return the columns that a text takes, without colour codes: wide characters two, combining marks none."""
    text = _COLOR_CODE.sub("", text) if "\x1b" in text else text
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )  # fmt: skip


def fold_line(line: str, width: int) -> list[str]:
    """Fold a line to lines of at most `width` columns, at blanks; the further ones are indented.

    A command to copy gets a backslash at each fold, and its words are never split; other words that are too long for a
    line are cut.
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
    """Split a word that is longer than a line, before a path separator if there is one near the end."""
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
    """Fold a text to the lines of a column, without an indent."""
    lines = fold_line(text, width)
    return [lines[0], *(line.lstrip(" ") for line in lines[1:])]


def can_draw_boxes(encoding: str, is_terminal: bool) -> bool:
    """Return True if box characters can be shown.

    Not in other encodings, and not on a terminal of the C locale (Python itself writes UTF-8 there, whatever the
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
