"""Writer for `-O sql`: a script for the server's client."""

from __future__ import annotations

from binlogtool.log.records import RecordBlock
from binlogtool.render.escape import escape


class SqlWriter:
    """Writes the statements unchanged; for a terminal, control characters are escaped."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._terminal = terminal

    def encode_block(self, block: RecordBlock) -> bytes | memoryview:
        """Return the statements of one block; a record without one becomes a comment."""
        return self.encode_text(b"".join(self._encode_record(block, i) for i in range(len(block))))

    def _encode_record(self, block: RecordBlock, i: int) -> bytes:
        comments = "".join(
            f"# {found.id} at {block.offset[i]}: {escape(found.message)}\n" for found in block.findings.get(i, ())
        )
        return comments.encode("utf-8", "backslashreplace") + (block.bodies[i] or b"")

    def encode_text(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return a piece of the script."""
        if not self._terminal:
            return data
        lines = bytes(data).decode("utf-8", "surrogateescape").split("\n")
        return "\n".join(map(escape, lines)).encode("utf-8", "backslashreplace")

    def finish(self) -> bytes:
        """Return nothing."""
        return b""
