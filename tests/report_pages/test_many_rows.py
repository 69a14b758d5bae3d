"""Tables of many rows are what rich draws."""

from __future__ import annotations

import random

import pytest

from binlogtool.terminal import tables

NAMES = ["offset", "size", "record", "seq", "time", "object", "body"]
TEXTS = [
    "a",
    "longer word here",
    "東京 text",
    "é",
    "",
    '{"a":"bcd efg"}',
    " lead",
    "trail ",
    "zz" * 70,
    "é" * 90,
    "e\u0301x",
]


@pytest.mark.parametrize("seed", range(8))
def test_many_rows_are_drawn_as_rich_draws_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    names, width, ascii_only = NAMES[: chance.randint(1, 7)], chance.choice([72, 120, 200]), seed % 2 == 1
    rows = [
        [chance.choice(TEXTS) if i > 3 else str(chance.randrange(10**9)) for i in range(len(names))] for _ in range(40)
    ]
    drawn = tables.render_table([names, *rows], ascii_only=ascii_only, width=width)
    monkeypatch.setattr(tables, "_MAX_RICH_ROWS", 1000)
    assert drawn == tables.render_table([names, *rows], ascii_only=ascii_only, width=width)
