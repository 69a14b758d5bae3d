"""What users write about transactions: sets of GTIDs, and positions among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

Wanted = Callable[[str | None], bool]
"""Is this transaction (its text as in `Described.txn`; None = none) meant?"""


class GtidRules(msgspec.Struct, frozen=True):
    """What users write about the transactions of a format whose texts are more than names. All raise `UsageError`.

    within: a set as text -> is a transaction in it? after, until: a position as text -> is a transaction behind it, or
    up to it (that one included)?
    """

    within: Callable[[str], Wanted]
    after: Callable[[str], Wanted]
    until: Callable[[str], Wanted]


class GtidDemand(NamedTuple):
    """What a selection asks of GTIDs, as texts (see `GtidRules`): behind a position, up to one, within a set."""

    start: str | None
    stop: str | None
    include: str | None
