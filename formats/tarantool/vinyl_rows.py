"""Spaces of vinyl whose rows no log tells: they lie in runs, which are data and no log (specification section 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from binlogtool.formats.tarantool.catalog import Catalog
from binlogtool.formats.tarantool.judge_vinyl import VylogFacts

_PRIMARY = 0


def untold(catalog: Catalog, loaded: Collection[int], facts: Any) -> dict[str, str]:
    """Names of such spaces, and why their rows are not known.

    loaded: spaces of vinyl that the snapshot has; all rows of those that are made behind it stand in the logs. facts:
    of the newest metadata log, or None.
    """
    names = {space: catalog.name(space) for space in catalog.vinyl.intersection(loaded)}
    if not isinstance(facts, VylogFacts) or facts.damaged:
        return dict.fromkeys(names.values(), "rows of vinyl lie in runs, and no sound metadata log says in which")
    indexes = (facts.spaces[lsm] for lsm in facts.runs.values() if lsm in facts.spaces)
    runs = Counter(space for space, index in indexes if index == _PRIMARY)
    return {
        name: f"rows of it lie in {runs[space]:,} runs of vinyl, which are no log and are not read"
        for space, name in names.items()
        if runs[space]
    }
