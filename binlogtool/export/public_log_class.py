"""Log as the public API opens it, with rows for notebooks; the export modules are imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from binlogtool.core import open_log as open_log_module
from binlogtool.core.record_and_selection_types import Selection, add_selection_hints
from binlogtool.errors import UsageError
from binlogtool.format_api.format import Hints
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.export.read_rows_as_arrow import LogRows, SpooledTables


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class Log(open_log_module.LogReader):
    """Open log: the records of one or more files, in order. Use it as a context manager, or call `close`."""

    def rows(
        self,
        table: str | None = None,
        *,
        image: str | None = None,
        columns: Sequence[str] = (),
        start: str | datetime | None = None,
        selection: Selection = Selection(),
    ) -> LogRows:
        """Return the records as rows or, with the name of a table, its changed rows with the table's columns and types.

        Nothing is read before rows or their schema are requested. Each use opens the files anew: rows can be read
        repeatedly, in parallel, and after the log is closed.

        Args:
            table: name of a table.
            image: row image of a changed row: after (default), before, both, changes.
            columns: names of the columns to return, in this order; () = all.
            start: a position as in `--start-position`, or a time, which is UTC if it has no zone.
            selection: further selection; for a table, `where`, `skip` and `limit` refer to changed rows.

        Raises:
            MissingExtraError: pyarrow or numpy is not installed.
            UsageError: the options contradict each other, or the log is a stream.
        """
        _import_arrow_with_memory_ceiling("rows()")
        from binlogtool.export.read_rows_as_arrow import create_log_rows

        _check_argument_types(table, columns)
        if isinstance(start, datetime):
            selection = replace(selection, start_time=_to_microseconds(start))
        elif isinstance(start, str):
            selection = replace(selection, start=start)
        elif start is not None:
            raise UsageError(f"start={start!r}: must be a position as a string, or a datetime")
        hints = add_selection_hints(selection, self._hints, needs_statements=table is not None)
        return create_log_rows(self.reopen(hints), selection, table, image, tuple(columns))

    def spool_tables(
        self,
        tables: Sequence[str],
        *,
        image: str | None = None,
        columns: Sequence[str] = (),
        selection: Selection = Selection(),
    ) -> AbstractContextManager[SpooledTables]:
        """Read the changed rows of many tables in one pass, into temporary files that are removed after the block.

        Args:
            tables: names of tables, as `tables()` returns them.
            image, columns, selection: see `rows`; `skip` is that of each table.

        Raises:
            As `rows`.
        """
        _import_arrow_with_memory_ceiling("spool_tables()")
        from binlogtool.export.read_rows_as_arrow import spool_tables

        log = self.reopen(add_selection_hints(selection, self._hints, needs_statements=True))
        return spool_tables(log, tables, selection, image, tuple(columns))

    def tables(self, selection: Selection = Selection()) -> list[str]:
        """Return the names of the tables in the selected records, in the order of the log.

        Raises:
            MissingExtraError: pyarrow or numpy is not installed.
            UsageError: the format has no tables, or the log is a stream.
        """
        _import_arrow_with_memory_ceiling("tables()")
        from binlogtool.export.read_rows_as_arrow import find_tables

        with self.reopen(add_selection_hints(selection, self._hints, needs_statements=True)) as log:
            return find_tables(log, selection)

    @property
    def backend(self) -> str:
        """The requested backend: "auto", "native" or "python"."""
        return self._backend

    @property
    def limits(self) -> Limits:
        """Limits of all passes over the log."""
        return self._limits

    @property
    def hints(self) -> Hints:
        """Information that the log does not contain itself (`binlogtool.read_hints`)."""
        return self._hints

    def find_unmatched_schema(self) -> str:
        """Return a message if --schema defines no table of the log, otherwise ""."""
        from binlogtool.core.unmatched_names import describe_unmatched_schema

        return (
            ""
            if self.hints is None or self.hints.schema is None
            else describe_unmatched_schema(self, self.hints.schema)
        )

    @property
    def paths(self) -> list[tuple[str, str]]:
        """(path, format name) of the files; "auto" = not detected yet."""
        return [(path, "auto" if format_ is None else format_.name) for path, _, format_ in self._plan]


def _import_arrow_with_memory_ceiling(purpose: str) -> None:
    """Import Arrow; from then on the memory ceiling, if there is one, counts what is used beside it.

    Raises:
        MissingExtraError: pyarrow or numpy is not installed.
    """
    from binlogtool import limits
    from binlogtool.export.output_options import require_modules_lifting_memory_limit

    require_modules_lifting_memory_limit(purpose, "pyarrow", "numpy", extra="arrow")
    import binlogtool.export.read_rows_as_arrow  # noqa: F401  (loads the libraries)

    limits.restore_ceiling_of_resident_memory()


def _check_argument_types(table: Any, columns: Any) -> None:
    """Raise UsageError for arguments of a wrong type that are a likely mistake."""
    if table is not None and not isinstance(table, str):
        raise UsageError(f"rows({table!r}): the name of a table must be a string")
    if isinstance(columns, str):
        raise UsageError(f"columns={columns!r}: write a list of names, [{columns!r}]")


def _to_microseconds(moment: datetime) -> int:
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
