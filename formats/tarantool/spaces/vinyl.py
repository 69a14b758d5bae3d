"""Vinyl spaces whose rows are in no log but in runs (`docs/spec/tarantool.md#vinyl-files`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from binlogtool.formats.tarantool.judge.vinyl import VylogFacts
from binlogtool.formats.tarantool.spaces.catalog import SpaceCatalog

_PRIMARY_INDEX = 0


def find_spaces_in_runs(catalog: SpaceCatalog, loaded: Collection[int], facts: Any) -> dict[str, str]:
    """Return the names of vinyl spaces with rows in runs, and why these rows are not known.

    All rows of spaces that are created after the snapshot, or that had no run at that checkpoint, are in the logs.

    Args:
        loaded: vinyl spaces that the snapshot has.
        facts: `VylogFacts` of the newest metadata log, or None.
    """
    names = {space: catalog.get_name(space) for space in catalog.vinyl.intersection(loaded)}
    if not isinstance(facts, VylogFacts) or facts.damaged:
        return dict.fromkeys(names.values(), "rows of vinyl lie in runs, and no sound metadata log says in which")
    based = {run.lsm for run in facts.state.runs.values() if not run.dropped} if facts.based is None else facts.based
    indexes = facts.list_tree_indexes(based)
    why = "the rows that it had at the checkpoint lie in runs of vinyl, which are no log and are not read"
    return {name: why for space, name in names.items() if (space, _PRIMARY_INDEX) in indexes}
