"""`-O sql`: a script for a server's client."""

from __future__ import annotations

from binlogtool.log.records import Block
from binlogtool.render.escape import escape


class SqlWriter:
    """The statements as they are; on a terminal with everything visible that would act on it."""

    def __init__(self, *, terminal: bool = False) -> None:
        self._terminal = terminal

    def block(self, block: Block) -> bytes | memoryview:
        """The statements of one block; a comment stands for a record that has none."""
        return self.text(b"".join(self._record(block, i) for i in range(len(block))))

    def _record(self, block: Block, i: int) -> bytes:
        said = "".join(
            f"# {found.id} at {block.offset[i]}: {escape(found.message)}\n" for found in block.findings.get(i, ())
        )
        return said.encode("utf-8", "backslashreplace") + (block.bodies[i] or b"")

    def text(self, data: bytes | memoryview) -> bytes | memoryview:
        """A piece of the script."""
        if not self._terminal:
            return data
        lines = bytes(data).decode("utf-8", "surrogateescape").split("\n")
        return "\n".join(map(escape, lines)).encode("utf-8", "backslashreplace")

    def end(self) -> bytes:
        """Nothing."""
        return b""
