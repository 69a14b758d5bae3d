"""Small helpers for generated source text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """Lines of Python source with the current indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def __call__(self, line: str) -> None:
        """Adds one line."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """One step deeper inside of the block."""
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"


def variable_names(paths: tuple[str, ...]) -> dict[str, str]:
    """A Python variable for each field path, unique and still readable."""
    return {path: f"v{index}_{re.sub('[^A-Za-z0-9]', '_', path)}" for index, path in enumerate(paths)}
