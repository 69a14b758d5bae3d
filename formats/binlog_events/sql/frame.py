"""What stands around the events in a script: first lines, what the server is told of the log, last lines."""

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
    """announced: what the server was told of the log. missing: what is not in the script."""

    announced: FormatDescription | None = None
    missing: list[str] = msgspec.field(default_factory=list)

    def announce(self, context: FileContext, *, is_open: bool) -> bytes:
        """The FORMAT_DESCRIPTION, before all that it describes, and outside of transactions."""
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
        """A part of the log is not there."""
        if what and len(self.missing) < _MOST_TOLD:
            self.missing.append(what)

    def end(self, session: Session, stopped: Sequence[str]) -> bytes:
        """Gives the client its state back, and says what is missing. stopped: why the script ends before the log."""
        last = client.quick(AUTOMATIC) if self.announced is not None and knows_gtids(self.announced) else b""
        last += session.end() + client.SCRIPT_END
        told = map(one_line, (*self.missing, *stopped))
        return last + b"".join(f"# {text}\n".encode("ascii", "backslashreplace") for text in told)


def one_line(text: str) -> str:
    """Text of others, as it can stand in a comment."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _form(described: FormatDescription) -> tuple[str, bytes, int | None]:
    """What a server must know of the events behind it."""
    return described.server_version, described.post_header_len, described.checksum_alg
