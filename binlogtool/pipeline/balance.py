"""Distribution of files among tasks by size."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

GROUPS_PER_CORE = 4
"""Tasks per core: keeps all cores busy although some tasks take longer than others."""


def balance_by_size(sizes: Sequence[int], groups: int) -> list[list[int]]:
    """Distribute indexes of `sizes` over at most `groups` groups: largest first, each to the group with the fewest
    bytes.
    """
    count = min(groups, len(sizes))
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        load, number = heapq.heappop(loads)
        shares[number].append(i)
        heapq.heappush(loads, (load + sizes[i] + 1, number))
    return [sorted(share) for share in shares]


def group_by_size(items: Sequence[T], sizes: Sequence[int], groups: int) -> list[list[T]]:
    """Distribute items over at most `groups` groups of similar size; items keep their order, groups that of their
    first item.
    """
    return [[items[i] for i in share] for share in sorted(balance_by_size(sizes, groups), key=min)]
