"""Parsers of GTID sets and GTID positions given by the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

TransactionPredicate = Callable[[str | None], bool]
"""Is this transaction (its text as in `Described.txn`; None = none) meant?"""


class GtidParsers(msgspec.Struct, frozen=True):
    """Parsers of the GTID texts of a format. All raise `UsageError`.

    Args:
        parse_set: a set -> predicate: is a transaction in it?
        parse_after: a position -> predicate: is a transaction after it?
        parse_until: a position -> predicate: is a transaction at or before it?
    """

    parse_set: Callable[[str], TransactionPredicate]
    parse_after: Callable[[str], TransactionPredicate]
    parse_until: Callable[[str], TransactionPredicate]


class GtidSelection(NamedTuple):
    """The GTID texts of a selection (see `GtidParsers`): after a position, up to one, within a set."""

    start: str | None
    stop: str | None
    include: str | None
