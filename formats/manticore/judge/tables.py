"""State of the tables of a file during validation, and the facts for the rules of the directory."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from binlogtool.formats.manticore.meaning import decode_text


class ManticoreTableState(msgspec.Struct):
    """One table of a file.

    Attributes:
        name: None where its ADD_INDEX is in a damaged range.
        first, last: TIDs.
        damage: number of damaged ranges before its last transaction.
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
        """Name of the table in messages."""
        return f"table id {self.id}" if self.name is None else f"table {decode_text(self.name)}"


class ManticoreLogFacts(msgspec.Struct, frozen=True):
    """Facts about one file for the rules of the directory.

    Attributes:
        tables: name -> (first TID, last TID, transactions, offset of the first).
        stop: where the server's replay ends before the end of the file, or None.
        action: what the server does with the file.
    """

    version: int
    size: int
    tables: Mapping[bytes, tuple[int | None, int, int, int]]
    closed: bool
    damaged: bool
    commits: int
    stop: int | None
    action: str
