"""Times as people write them; expected values are those of `date -u -d`."""

from __future__ import annotations

import pytest

from binlogtool.cli.options import parse_time
from binlogtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20261120", 1795132800), ("19700101", 0), ("20000229", 951782400), ("2026-11-20", 1795132800),
        ("1795132800", 1795132800), ("1795132800.5", 1795132800.5), ("12345678", 12345678), ("20261320", 20261320),
        ("20261120T120000Z", 1795176000), ("20261120.0", 20261120),
    ],
)  # fmt: skip
def test_eight_digits_that_are_a_date_are_one(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds * 1_000_000


@pytest.mark.parametrize(
    "text", ["202611201230", "20261120123000", "9" * 5000, "-" + "9" * 400 + "w", "0001-01-01T00:00-99"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)
