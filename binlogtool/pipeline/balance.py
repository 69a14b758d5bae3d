"""How work is shared out among tasks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

GROUPS_PER_CORE = 4
"""So many tasks keep a core busy to the end, although some take longer than others."""


def balanced(sizes: Sequence[int], groups: int) -> list[list[int]]:
    """Shares positions among at most `groups` groups, the biggest first, each to the group with the fewest bytes."""
    count = min(groups, len(sizes))
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, number = heapq.heappop(loads)
        shares[number].append(i)
        heapq.heappush(loads, (load + sizes[i] + 1, number))
    return [sorted(share) for share in shares]


def in_groups(items: Sequence[T], sizes: Sequence[int], groups: int) -> list[list[T]]:
    """The items of each of at most `groups` groups, in their order, and so the groups by their first items."""
    return [[items[i] for i in share] for share in sorted(balanced(sizes, groups), key=min)]
