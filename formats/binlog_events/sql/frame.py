"""First and last lines of a script, and the FORMAT_DESCRIPTION that the server needs of each file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import described_binlog
from binlogtool.formats.binlog_events.sql.gtids import AUTOMATIC, knows_gtids
from binlogtool.formats.binlog_events.sql.session import Session
from binlogtool.formats.binlog_events.stream.context import FileContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription

_MOST_TOLD = 1000
"""Lines about what is missing at the end of a script."""


class Frame(msgspec.Struct):
    """State of a script's frame.

    `announced` is the FORMAT_DESCRIPTION that the server was given last. `missing` lists what is not in the
    script.
    """

    announced: FormatDescription | None = None
    missing: list[str] = msgspec.field(default_factory=list)

    def announce(self, context: FileContext, *, is_open: bool) -> bytes:
        """Return the FORMAT_DESCRIPTION, before the events that it describes and outside of transactions."""
        described, before = context.description, self.announced
        if described is before or (is_open and before is not None):
            return b""
        self.announced = described
        if before is not None and _form(before) == _form(described):
            return b""
        if not described.event:
            return b"" if before is not None else client.script_start("a server")
        writer = described.server_version
        text = b"" if before is not None else client.script_start(writer if writer.isprintable() else "a server")
        text += client.quick(b"ROLLBACK") if described.create_timestamp or before is None else b""
        text += client.quick(described_binlog(described))
        return text + (client.quick(AUTOMATIC) if knows_gtids(described) else b"")

    def lose(self, what: str) -> None:
        """Remember a part of the log that is missing."""
        if what and len(self.missing) < _MOST_TOLD:
            self.missing.append(what)

    def end(self, session: Session, stopped: Sequence[str]) -> bytes:
        """Return what restores the client's state and comments about what is missing.

        Args:
            stopped: why the script ends before the log does.
        """
        last = client.quick(AUTOMATIC) if self.announced is not None and knows_gtids(self.announced) else b""
        last += session.end() + client.SCRIPT_END
        told = map(one_line, (*self.missing, *stopped))
        return last + b"".join(f"# {text}\n".encode("ascii", "backslashreplace") for text in told)


def one_line(text: str) -> str:
    """Return foreign text in a form that fits into a one-line comment."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _form(described: FormatDescription) -> tuple[str, bytes, int | None]:
    """Return what a server must know of the events after a FORMAT_DESCRIPTION."""
    return described.server_version, described.post_header_len, described.checksum_alg
