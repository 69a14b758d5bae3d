"""Sizes of a script's statements compared with max_allowed_packet."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.binlog_events.sql.binlog import Statement
from binlogtool.formats.binlog_events.sql.client import END
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.limits import MIB

_USUAL = ((8, 0, 3), 64 * MIB, 4 * MIB)
"""MySQL's default since that version, and before it."""

_MARIADB_USUAL = 16 * MIB
_HIGHEST = 1024 * MIB
"""No server can be told to take more."""

_COMMAND = 1
"""Bytes of a packet before the statement."""


def usual_packet(description: FormatDescription) -> int:
    """Return the default max_allowed_packet of the server that wrote the log, in bytes."""
    since, now, before = _USUAL
    return _MARIADB_USUAL if description.is_mariadb else now if description.version >= since else before


class Packets(msgspec.Struct):
    """Size of the largest statement of a script, in bytes."""

    largest: int = 0

    def count(self, made: Sequence[Statement]) -> None:
        """Account for statements that are in the script."""
        for one in made:
            size = len(one) if isinstance(one, bytes) else sum(map(len, one))
            self.largest = max(self.largest, size + _COMMAND)

    def count_text(self, text: bytes | memoryview, description: FormatDescription) -> None:
        """Account for a text of statements that already have their delimiters."""
        if len(text) > usual_packet(description):
            self.count(bytes(text).split(END))

    def remarks(self, description: FormatDescription | None) -> Sequence[Finding]:
        """Return a finding if a statement exceeds the default max_allowed_packet of the target server."""
        if description is None or self.largest <= usual_packet(description):
            return ()
        text = f"it has a statement of {self.largest:,} bytes, and servers take "
        if self.largest > _HIGHEST:
            text += f"{_HIGHEST:,} at most, whatever max_allowed_packet is: this row cannot come by a script"
            return (finding("statement-large", None, 0, text, severity=Severity.ERROR),)
        wanted = 2 ** (self.largest - 1).bit_length() // MIB
        text += f"{usual_packet(description):,} unless they are told otherwise: "
        text += f"SET GLOBAL max_allowed_packet={wanted}*1024*1024 before a client runs it"
        return (finding("statement-large", None, 0, text),)
