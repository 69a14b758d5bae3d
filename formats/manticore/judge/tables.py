"""What the judge of a file remembers of its tables, and what the rules of the directory need of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from binlogtool.formats.manticore.meaning import text


class Table(msgspec.Struct):
    """One table of a file. name: None where its ADD_INDEX lies in a damaged range.

    first, last: TIDs. damage: how many damaged ranges lay before its last transaction.
    """

    id: int
    name: bytes | None
    first: int | None = None
    last: int = -1
    txns: int = 0
    offset: int = 0
    time: int = 0
    damage: int = 0

    @property
    def title(self) -> str:
        """For messages."""
        return f"table id {self.id}" if self.name is None else f"table {text(self.name)}"


class LogFacts(msgspec.Struct, frozen=True):
    """What the rules of the directory need of one file.

    tables: name -> (first TID, last TID, transactions, offset of the first).
    stop: where the server's replay ends before the end of the file. action: what it does with the file.
    """

    version: int
    size: int
    tables: Mapping[bytes, tuple[int | None, int, int, int]]
    closed: bool
    damaged: bool
    commits: int
    stop: int | None
    action: str
