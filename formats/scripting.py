"""Scripts of statements for a server: how one shall be, and what makes it from the records of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from binlogtool.findings import Finding
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.described import Noted
    from binlogtool.formats.layouts import Batch, Kernel
    from binlogtool.formats.unrolled import Unrolled


class Wording(msgspec.Struct, frozen=True):
    """How a script of statements shall be.

    gtids: transactions get the identities that they had. undo: statements that reverse the changes, to be put together
    in the opposite order of what `Script` gives. flat: no transactions, each statement stands for itself. databases:
    name -> the name to use in its place. tables: which ones ("database.table") are reversed, or written; None = all.
    rows: changes of rows as the events that they were ("exact"), or as INSERT, UPDATE and DELETE ("statements").
    comments: what the events change, as comments. only: databases that are written; empty = all. until: a statement;
    the script ends before the transaction that holds the first one like it. shelf: where files of the log go; None =
    nowhere. skip_ddl: an undo leaves what defines its tables as it is, and says so. where: which rows are reversed, or
    written; `tables` leaves out those of which it chooses none. partial: not all transactions, or rows, are chosen: an
    undo reports later changes of the chosen rows.
    """

    gtids: bool = False
    undo: bool = False
    flat: bool = False
    databases: Mapping[str, str] = msgspec.field(default_factory=dict)
    tables: Callable[[str], bool] | None = None
    rows: str = "exact"
    comments: bool = False
    only: frozenset[str] = frozenset()
    until: str | None = None
    shelf: Shelf | None = None
    skip_ddl: bool = False
    where: RowChoice | None = None
    partial: bool = False


class RowChoice(Protocol):
    """Which rows of changes are chosen, by a condition on them and their record."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it speaks of."""

    def rows(self, index: int, body: Callable[[], Any]) -> bool | Sequence[bool]:
        """For each row of a record: is it chosen? One answer stands for all of them.

        index: the record's, in the batch whose records are written. body: decodes it.
        """


class Shelf(Protocol):
    """Files that a script needs beside it: data that a server loaded."""

    def add(self, name: str, data: bytes) -> None:
        """More bytes of a file."""

    def path(self, name: str) -> str:
        """Where the file is when the script runs."""


class Script(Protocol):
    """Statements for a server, made from the chosen records of a log in their order; one for all its files.

    Nothing of a statement is written before all of it is known. A client can execute the text line by line.
    """

    def records(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> list[bytes | Noted]:
        """The text for each of these records, b"" for those that need none; `Noted` where a statement is missing."""

    @property
    def stopped(self) -> Finding | None:
        """Why nothing more is written, although more is there."""

    def quick(
        self,
        context: Any,
        batch: Batch | Unrolled,
        start: int,
        stop: int,
        limits: Limits,
        compile_: Callable[[Kernel], Kernel],
    ) -> tuple[bytes | memoryview, int]:
        """The text for the first of these records as far as compiled code can write it, and where that ends.

        batch: or a run of records with those inside of them, to which `start` and `stop` belong then.
        """

    def pass_by(self, context: Any, batch: Batch, start: int, stop: int, limits: Limits) -> None:
        """These records are not chosen; in the order of the log with the others."""

    @property
    def row_changes(self) -> int | None:
        """How many changes of rows were written; None = they are not counted."""

    @property
    def is_empty(self) -> bool:
        """Was nothing of the log written so far?"""

    def lost(self, what: str = "") -> bytes:
        """The text for a place where records may be missing: what is open there must not be committed. what: it."""

    def end(self) -> bytes:
        """The text behind the last record."""

    def remarks(self) -> Sequence[Finding]:
        """What is to be said behind the end."""
