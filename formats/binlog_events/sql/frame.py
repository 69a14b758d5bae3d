"""First and last lines of a script, and the FORMAT_DESCRIPTION that the server needs of each file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from binlogtool.formats.binlog_events.sql import client
from binlogtool.formats.binlog_events.sql.binlog import format_description_binlog
from binlogtool.formats.binlog_events.sql.gtids import SET_GTID_AUTOMATIC, has_gtids
from binlogtool.formats.binlog_events.sql.session import ScriptSession
from binlogtool.formats.binlog_events.stream.context import BinlogFileContext
from binlogtool.formats.binlog_events.wire.description import FormatDescription

_MAX_MISSING_LINES = 1000
"""Lines about what is missing at the end of a script."""


class ScriptFrame(msgspec.Struct):
    """State of a script's frame.

    `announced` is the FORMAT_DESCRIPTION that the server was given last. `missing` lists what is not in the
    script.
    """

    announced: FormatDescription | None = None
    missing: list[str] = msgspec.field(default_factory=list)

    def write_description(self, context: BinlogFileContext, *, is_open: bool) -> bytes:
        """Return the FORMAT_DESCRIPTION, before the events that it describes and outside of transactions."""
        description, previous = context.description, self.announced
        if description is previous or (is_open and previous is not None):
            return b""
        self.announced = description
        if previous is not None and _description_key(previous) == _description_key(description):
            return b""
        if not description.event:
            return b"" if previous is not None else client.format_script_header("a server")
        writer = description.server_version
        text = (
            b"" if previous is not None else client.format_script_header(writer if writer.isprintable() else "a server")
        )
        text += client.terminate_safe(b"ROLLBACK") if description.create_timestamp or previous is None else b""
        text += client.terminate_safe(format_description_binlog(description))
        return text + (client.terminate_safe(SET_GTID_AUTOMATIC) if has_gtids(description) else b"")

    def note_missing(self, description: str) -> None:
        """Remember a part of the log that is missing."""
        if description and len(self.missing) < _MAX_MISSING_LINES:
            self.missing.append(description)

    def write_footer(self, session: ScriptSession, stopped: Sequence[str]) -> bytes:
        """Return what restores the client's state and comments about what is missing.

        Args:
            stopped: why the script ends before the log does.
        """
        last = (
            client.terminate_safe(SET_GTID_AUTOMATIC)
            if self.announced is not None and has_gtids(self.announced)
            else b""
        )
        last += session.restore() + client.SCRIPT_FOOTER
        lines = map(sanitize_line, (*self.missing, *stopped))
        return last + b"".join(f"# {text}\n".encode("ascii", "backslashreplace") for text in lines)


def sanitize_line(text: str) -> str:
    """Return foreign text in a form that fits into a one-line comment."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _description_key(description: FormatDescription) -> tuple[str, bytes, int | None]:
    """Return what a server must know of the events after a FORMAT_DESCRIPTION."""
    return description.server_version, description.post_header_len, description.checksum_alg
