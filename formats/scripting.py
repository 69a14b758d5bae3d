"""SQL scripts for a server: their options, and the writer that makes them from the records of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.described import BodyWithFindings
    from binlogtool.formats.layouts import Batch, Kernel
    from binlogtool.formats.unrolled import FlatRecords


class ScriptOptions(msgspec.Struct, frozen=True):
    """Options of an SQL script.

    Args:
        gtids: keep the GTIDs of the transactions.
        flashback: statements that reverse the row changes, to be put together in the opposite order of what
            `ScriptWriter` returns.
        flat: no transactions; each statement stands alone.
        rename_databases: name -> the name to use instead.
        includes_table: is a table ("database.table") reversed, or written? None = all are.
        rows: row changes as their original events ("exact"), or as INSERT, UPDATE and DELETE ("statements").
        comments: what the events change, as comments.
        only_databases: databases that are written; empty = all.
        stop_before: a statement; the script ends before the transaction that holds the first matching one.
        sidecar_files: where files of the log go; None = nowhere.
        skip_ddl: a flashback leaves out table definitions, and reports that.
        row_filter: which rows are reversed, or written; `includes_table` excludes tables of which it selects none.
        is_partial: not all transactions, or rows, are selected: a flashback reports later changes of the selected
            rows.
    """

    gtids: bool = False
    flashback: bool = False
    flat: bool = False
    rename_databases: Mapping[str, str] = msgspec.field(default_factory=dict)
    includes_table: Callable[[str], bool] | None = None
    rows: str = "exact"
    comments: bool = False
    only_databases: frozenset[str] = frozenset()
    stop_before: str | None = None
    sidecar_files: SidecarFiles | None = None
    skip_ddl: bool = False
    row_filter: RowFilter | None = None
    is_partial: bool = False


class RowFilter(Protocol):
    """Select rows by a condition on them and their record."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the condition refers to."""

    def select_rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """Return for each row of a record whether it is selected; a single bool stands for all of them.

        Args:
            index: of the record in the batch whose records are written.
            body: decodes the record.
        """


class SidecarFiles(Protocol):
    """Files that a script needs beside it: data that a server loaded (LOAD DATA)."""

    def add(self, name: str, data: bytes) -> None:
        """Append bytes to a file."""

    def path(self, name: str) -> str:
        """Return the path of the file when the script runs."""


class ScriptWriter(Protocol):
    """Write statements for a server from the selected records of a log, in their order; one writer for all its files.

    A statement is written only once all of it is known. A client can execute the text line by line.
    """

    def read_records(
        self, context: Any, batch: Batch, start: int, stop: int, limits: Limits
    ) -> list[bytes | BodyWithFindings]:
        """Return the text for each of these records, b"" for none; `BodyWithFindings` if a statement is missing."""

    @property
    def stop_finding(self) -> Finding | None:
        """The reason why nothing more is written although the log continues; None = it is not stopped."""

    def write_compiled(
        self,
        context: Any,
        batch: Batch | FlatRecords,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """Return the text for the first of these records, as far as compiled code can write it, and the next record.

        Args:
            batch: a batch, or a run of records with those inside them; `start` and `stop` count in it.
        """

    def skip_records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """Note records that are not selected; in log order with the others."""

    @property
    def row_changes(self) -> int | None:
        """Number of row changes written; None = they are not counted."""

    @property
    def is_empty(self) -> bool:
        """True if nothing of the log has been written so far."""

    def note_gap(self, what: str = "") -> bytes:
        """Return the text for a position where records may be missing: an open transaction must not be committed.

        what: description of the gap.
        """

    def finish(self) -> bytes:
        """Return the text after the last record."""

    def final_findings(self) -> Sequence[Finding]:
        """Return the findings that are known at the end."""
