"""Options of typed tables: which tables are selected, and what their rows contain."""

from __future__ import annotations

import fnmatch

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.findings import ROWS_DIVERGE, Finding
from binlogtool.formats.table_names import split_name
from binlogtool.formats.tables import TableSchema, make_database_table
from binlogtool.log.select import Selection

IMAGE_CHOICES = ("after", "before", "both", "changes")


class TypedRowOptions(msgspec.Struct, frozen=True):
    """Options of typed rows.

    Args:
        objects: patterns of selected tables; () = all.
        others: patterns of excluded tables.
        image: content of the columns. after: the row after the change; of a DELETE, before it. before: the row before
            the
            change; of an INSERT, nothing. both: two structs. changes: as `after`, of an UPDATE only changes and key.
        per_table: one directory per table; otherwise there is one table, and the output is its directory.
        where: a condition on rows.
        skip, limit: number of matching rows to skip, and maximum number of rows.
    """

    objects: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    image: str = "after"
    per_table: bool = True
    where: str | None = None
    skip: int = 0
    limit: int | None = None

    def is_selected(self, table: TableSchema) -> bool:
        """Return True if the table is selected."""
        names = table.names
        return (not self.objects or _matches_any(names, self.objects)) and not _matches_any(names, self.others)

    def may_be_selected(self, table: TableSchema) -> bool:
        """Return True if a table that a statement names could be selected; servers may ignore upper and lower case."""
        names = tuple(name.casefold() for name in table.names)
        return self.is_selected(table) or (
            bool(self.objects) and _matches_any(names, tuple(map(str.casefold, self.objects)))
        )

    def is_relevant(self, finding: Finding) -> bool:
        """Return True if a finding is about a selected table, or does not name a table."""
        name = finding.facts.get("table") if finding.id == ROWS_DIVERGE else None
        return name is None or self.may_be_selected(make_database_table(*split_name(str(name)), ()))

    def with_pattern(self, pattern: str) -> TypedRowOptions:
        """Return a copy for one pattern of tables."""
        return replace(self, objects=(pattern,), others=())


def describe_other_table(name: str) -> str:
    """Return the remark about a statement that changes rows of a table that is not selected."""
    return (
        f"a statement changes rows of {name}, which is not asked for; what a trigger or a foreign key of it does to "
        "other tables is not in the log"
    )


class TableFilter:
    """`TypedRowOptions.is_selected` with the last answer cached, as consecutive rows mostly have the same table."""

    def __init__(self, options: TypedRowOptions) -> None:
        self._options = options
        self._last: TableSchema | None = None
        self._last_answer = False

    def __call__(self, table: TableSchema) -> bool:
        """Return True if the table is selected."""
        if table is not self._last:
            self._last, self._last_answer = table, self._options.is_selected(table)
        return self._last_answer


def _matches_any(names: tuple[str, ...], globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for name in names for glob in globs)


def build_typed_options(selection: Selection, image: str | None, *, per_table: bool) -> TypedRowOptions:
    """Return the options of typed rows from a selection and the options --image and --per-table.

    Raises:
        UsageError: they contradict each other.
    """
    if image not in (None, *IMAGE_CHOICES):
        raise UsageError(f"--image {image}: choose one of {', '.join(IMAGE_CHOICES)}")
    if selection.tail is not None:
        raise UsageError("--tail counts records, and rows of tables are none: choose by position or time")
    if selection.where is not None:
        _check_row_condition(selection.where)
    s, is_single_table = (
        selection,
        len(selection.objects) == 1 and not any(map("*?[".__contains__, selection.objects[0])),
    )
    row_filters = (s.where, s.skip, s.limit)
    return TypedRowOptions(
        s.objects, s.exclude_objects, image or "after", per_table or not is_single_table, *row_filters
    )


def _check_row_condition(text: str) -> None:
    from binlogtool.log.where import compile_condition

    bodies = [path for path in compile_condition(text).paths if path[0] == "body"]
    if bodies:
        name = ".".join(map(str, bodies[0]))
        raise UsageError(f"--where: {name}: rows of tables have no body: write before.COLUMN or after.COLUMN")


def typed_selection(selection: Selection) -> Selection:
    """Return the selection to read: also records that define tables and transactions."""
    return replace(selection, objects=(), exclude_objects=(), where=None, skip=0, limit=None)
