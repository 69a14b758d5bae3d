"""Which tables are wanted, and how their rows shall look."""

from __future__ import annotations

import fnmatch

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import DIVERGES, Finding
from binlogtool.formats.table_names import parts_of
from binlogtool.formats.tables import Table, in_database
from binlogtool.log.select import Selection

CHOICES = ("after", "before", "both", "changes")


class Wishes(msgspec.Struct, frozen=True):
    """objects, others: patterns of tables that are wanted, and of those that are not; () = all, none.

    image: what the columns of a row hold. after: the row as it is behind the change, of a DELETE as it was. before: as
    it was, of an INSERT nothing. both: two structs. changes: as `after`, of an UPDATE only what changed, and the key.
    per_table: a directory for each table; else there is one table only, and the output is its directory.
    where: a condition on rows. skip, limit: of the rows that it leaves so many are passed over, and no more are made.
    """

    objects: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    image: str = "after"
    per_table: bool = True
    where: str | None = None
    skip: int = 0
    limit: int | None = None

    def wants(self, table: Table) -> bool:
        """Is it one of them?"""
        names = table.names
        return (not self.objects or _matches(names, self.objects)) and not _matches(names, self.others)

    def may_want(self, table: Table) -> bool:
        """Could it be one of them, where a statement names it? Servers may not tell upper case from lower case."""
        names = tuple(name.casefold() for name in table.names)
        return self.wants(table) or (bool(self.objects) and _matches(names, tuple(map(str.casefold, self.objects))))

    def concerns(self, found: Finding) -> bool:
        """Is a finding about one of them, where it names a table, or about any?"""
        name = found.facts.get("table") if found.id == DIVERGES else None
        return name is None or self.may_want(in_database(*parts_of(str(name)), ()))

    def only(self, pattern: str) -> Wishes:
        """The same for one pattern of tables."""
        return replace(self, objects=(pattern,), others=())


def of_another(name: str) -> str:
    """What is said of a statement whose rows are not told, of a table that is not wanted."""
    return (
        f"a statement changes rows of {name}, which is not asked for; what a trigger or a foreign key of it does to "
        "other tables is not in the log"
    )


class Wanted:
    """`Wishes.wants` for rows that come one after the other, most of them of the table of the last one."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._last: Table | None = None
        self._is = False

    def __call__(self, table: Table) -> bool:
        """Is it one of them?"""
        if table is not self._last:
            self._last, self._is = table, self._wishes.wants(table)
        return self._is


def _matches(names: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def wishes(selection: Selection, image: str | None, *, per_table: bool) -> Wishes:
    """What a selection and the options of typed tables ask for.

    Raises:
        UsageError: they contradict each other, or make no sense.
    """
    if image not in (None, *CHOICES):
        raise UsageError(f"--image {image}: choose one of {', '.join(CHOICES)}")
    if selection.tail is not None:
        raise UsageError("--tail counts records, and rows of tables are none: choose by position or time")
    if selection.where is not None:
        _check_where(selection.where)
    s, single = selection, len(selection.objects) == 1 and not any(map("*?[".__contains__, selection.objects[0]))
    own = (s.where, s.skip, s.limit)
    return Wishes(s.objects, s.exclude_objects, image or "after", per_table or not single, *own)


def _check_where(text: str) -> None:
    from binlogtool.log.where import where

    bodies = [path for path in where(text).paths if path[0] == "body"]
    if bodies:
        name = ".".join(map(str, bodies[0]))
        raise UsageError(f"--where: {name}: rows of tables have no body: write before.COLUMN or after.COLUMN")


def reach(selection: Selection) -> Selection:
    """What is read for them: also what describes tables and transactions."""
    return replace(selection, objects=(), exclude_objects=(), where=None, skip=0, limit=None)
