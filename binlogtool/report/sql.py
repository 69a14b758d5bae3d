"""Writer for `-O sql`: a script for the server's client."""

from __future__ import annotations

from binlogtool.log.records import Block
from binlogtool.render.escape import escape


class SqlWriter:
    """Writes the statements unchanged; for a terminal, control characters are escaped."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._terminal = terminal

    def block(self, block: Block) -> bytes | memoryview:
        """Return the statements of one block; a record without one becomes a comment."""
        return self.text(b"".join(self._record(block, i) for i in range(len(block))))

    def _record(self, block: Block, i: int) -> bytes:
        said = "".join(
            f"# {found.id} at {block.offset[i]}: {escape(found.message)}\n" for found in block.findings.get(i, ())
        )
        return said.encode("utf-8", "backslashreplace") + (block.bodies[i] or b"")

    def text(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return a piece of the script."""
        if not self._terminal:
            return data
        lines = bytes(data).decode("utf-8", "surrogateescape").split("\n")
        return "\n".join(map(escape, lines)).encode("utf-8", "backslashreplace")

    def end(self) -> bytes:
        """Return nothing."""
        return b""
