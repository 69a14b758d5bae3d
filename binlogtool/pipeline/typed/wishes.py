"""Which tables are wanted, and how their rows shall look."""

from __future__ import annotations

import fnmatch

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.tables import Table
from binlogtool.log.select import Selection

CHOICES = ("after", "before", "both", "changes")
_COUNTING = ("skip", "limit", "tail")


class Wishes(msgspec.Struct, frozen=True):
    """objects, others: patterns of tables that are wanted, and of those that are not; () = all, none.

    image: what the columns of a row hold. after: the row as it is behind the change, of a DELETE as it was. before: as
    it was, of an INSERT nothing. both: two structs. changes: as `after`, of an UPDATE only what changed, and the key.
    per_table: a directory for each table; else there is one table only, and the output is its directory.
    """

    objects: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    image: str = "after"
    per_table: bool = True

    def wants(self, table: Table) -> bool:
        """Is it one of them?"""
        names = (table.name, *table.ids)
        return (not self.objects or _matches(names, self.objects)) and not _matches(names, self.others)


def _matches(names: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def wishes(selection: Selection, image: str | None, *, per_table: bool) -> Wishes:
    """What a selection and the options of typed tables ask for.

    Raises:
        UsageError: they contradict each other.
    """
    if image not in (None, *CHOICES):
        raise UsageError(f"--image {image}: choose one of {', '.join(CHOICES)}")
    if selection.where is not None:
        raise UsageError("--where chooses records, and the rows of tables are no records: ask the table that is made")
    given = [name for name in _COUNTING if getattr(selection, name)]
    if given:
        raise UsageError(f"--{given[0]} counts records, and rows of tables are none: choose by position or time")
    single = len(selection.objects) == 1 and not any(map("*?[".__contains__, selection.objects[0]))
    return Wishes(selection.objects, selection.exclude_objects, image or "after", per_table or not single)


def reach(selection: Selection) -> Selection:
    """What is read for them: also what describes tables and transactions."""
    return replace(selection, objects=(), exclude_objects=())
