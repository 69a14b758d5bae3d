"""Nothing from the data acts on a terminal or hides on it."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from binlogtool.terminal.escape_and_fold_text import escape

ACTING = {*range(0x20), *range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F)}
ACTING |= {*range(0x2060, 0x206A), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xD800, 0xE000)}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcödé, 漢字, 😀", "plain text, ünïcödé, 漢字, 😀"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\x7f", "\\x7f"),
        ("file\u202egpj.exe", "file\\u202egpj.exe"),
        ("a\u200bb\u2060c\ufeff", "a\\u200bb\\u2060c\\ufeff"),
        ("a\u2028b\u2029c", "a\\u2028b\\u2029c"),
        ("\udcff\ud800", "\\xff\\ud800"),
        ("\U000e0041\ufe0f", "\\U000e0041\\ufe0f"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
        ("", ""),
    ],
)
def test_what_acts_or_hides_is_made_visible(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text(st.characters(exclude_categories=())))
@example("\x1b]0;title\x07")
@example("\udc9b\udc80")
def test_no_acting_character_is_left(text: str) -> None:
    assert not {ord(char) for char in escape(text)} & ACTING


def test_every_acting_character_of_unicode_is_made_visible() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        if code in ACTING or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert escape(char).isascii() and escape(char).startswith("\\")


def test_every_printable_ascii_character_stays() -> None:
    text = "".join(map(chr, range(0x20, 0x7F)))
    assert escape(text) == text


def test_escaping_imports_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys, binlogtool.terminal.escape_and_fold_text, binlogtool.terminal.hexdump\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
