"""How work is shared out among tasks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


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
