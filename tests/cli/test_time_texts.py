"""Times as people write them; expected values are those of `date -u -d`."""

from __future__ import annotations

import pytest

from binlogtool.cli.options import parse_time
from binlogtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20", 1795132800), ("1795132800", 1795132800), ("1795132800.5", 1795132800.5), ("12345678", 12345678),
        ("20261120T120000Z", 1795176000), ("20261120.0", 20261120),
    ],
)  # fmt: skip
def test_times_are_parsed(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds * 1_000_000


@pytest.mark.parametrize(
    "text", ["202611201230", "20261120123000", "9" * 5000, "-" + "9" * 400 + "w", "0001-01-01T00:00-99"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20261120", "'20261120' is a date without dashes; write 2026-11-20"),
        ("20261120123000", "'20261120123000' is a date without dashes; write 2026-11-20T12:30:00"),
        ("202611201230", "write 2026-11-20T12:30"),
        ("20261320", "'20261320' is neither a date nor a recent time in epoch seconds"),
        ("14:05", "'14:05' has no date; write YYYY-MM-DDT14:05"),
    ],
)
def test_a_date_without_dashes_is_refused_with_the_right_spelling(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time(text)
    assert message in str(refused.value)
