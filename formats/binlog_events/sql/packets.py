"""Sizes of a script's statements compared with max_allowed_packet."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.binlog_events.sql.binlog import Statement
from binlogtool.formats.binlog_events.sql.client import STATEMENT_END
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.limits import MIB

_MYSQL_DEFAULTS = ((8, 0, 3), 64 * MIB, 4 * MIB)
"""MySQL's default since that version, and before it."""

_MARIADB_DEFAULT = 16 * MIB
_MAX_ALLOWED_PACKET = 1024 * MIB
"""No server can be told to take more."""

_COMMAND_BYTES = 1
"""Bytes of a packet before the statement."""


def default_max_packet(description: FormatDescription) -> int:
    """Return the default max_allowed_packet of the server that wrote the log, in bytes."""
    since, current, older = _MYSQL_DEFAULTS
    return _MARIADB_DEFAULT if description.is_mariadb else current if description.version >= since else older


class StatementSizes(msgspec.Struct):
    """Size of the largest statement of a script, in bytes."""

    largest: int = 0

    def add_statements(self, statements: Sequence[Statement]) -> None:
        """Account for statements that are in the script."""
        for statement in statements:
            size = len(statement) if isinstance(statement, bytes) else sum(map(len, statement))
            self.largest = max(self.largest, size + _COMMAND_BYTES)

    def add_text(self, text: bytes | memoryview, description: FormatDescription) -> None:
        """Account for a text of statements that already have their delimiters."""
        if len(text) > default_max_packet(description):
            self.add_statements(bytes(text).split(STATEMENT_END))

    def list_findings(self, description: FormatDescription | None) -> Sequence[Finding]:
        """Return a finding if a statement exceeds the default max_allowed_packet of the target server."""
        if description is None or self.largest <= default_max_packet(description):
            return ()
        message = f"it has a statement of {self.largest:,} bytes, and servers take "
        if self.largest > _MAX_ALLOWED_PACKET:
            message += (
                f"{_MAX_ALLOWED_PACKET:,} at most, whatever max_allowed_packet is: this row cannot come by a script"
            )
            return (make_finding("statement-large", None, 0, message, severity=Severity.ERROR),)
        megabytes = 2 ** (self.largest - 1).bit_length() // MIB
        message += f"{default_max_packet(description):,} unless they are told otherwise: "
        message += f"SET GLOBAL max_allowed_packet={megabytes}*1024*1024 before a client runs it"
        return (make_finding("statement-large", None, 0, message),)
