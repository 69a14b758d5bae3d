"""Characters that draw nothing do not reach a reader as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.terminal.escape_and_fold_text import escape, escape_json
from tests.cli.invoke import invoke
from tests.cli.samples import raw_sql

RANGES = (
    "AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 "
    "1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)
"""Default_Ignorable_Code_Point in DerivedCoreProperties-16.0.0.txt of the Unicode Consortium."""

IGNORABLE = [
    chr(code)
    for one in RANGES.split()
    for code in range(int(one.partition("-")[0], 16), int(one.rpartition("-")[2], 16) + 1)
]


def test_every_ignorable_character_is_escaped() -> None:
    assert len(IGNORABLE) == 4174
    assert all(escape(char).isascii() and escape_json(f'"{char}"').isascii() for char in IGNORABLE)
    assert escape_json("zürich 東京 \u3000") == "zürich 東京 \u3000"
    assert escape_json("\U000e0041") == "\\udb40\\udc41"


@pytest.mark.parametrize("form", ["text", "table"])
def test_a_dump_hides_no_text(tmp_path: Path, form: str) -> None:
    sample = tmp_path / "hidden.log"
    sample.write_bytes(raw_sql(1, f"x{''.join(IGNORABLE[::7])}".encode()))
    done = invoke("dump", "-O", form, str(sample))
    assert done.code == 0 and "x" in done.text
    assert [char for char in IGNORABLE if char in done.text] == []
