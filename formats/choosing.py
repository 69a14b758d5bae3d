"""Parsers of GTID sets and GTID positions given by the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

Wanted = Callable[[str | None], bool]
"""Is this transaction (its text as in `Described.txn`; None = none) meant?"""


class GtidRules(msgspec.Struct, frozen=True):
    """Parsers of the GTID texts of a format. All raise `UsageError`.

    Args:
        parse_set: a set -> predicate: is a transaction in it?
        parse_after: a position -> predicate: is a transaction after it?
        parse_until: a position -> predicate: is a transaction at or before it?
    """

    within: Callable[[str], Wanted]
    after: Callable[[str], Wanted]
    until: Callable[[str], Wanted]


class GtidDemand(NamedTuple):
    """The GTID texts of a selection (see `GtidParsers`): after a position, up to one, within a set."""

    start: str | None
    stop: str | None
    include: str | None
