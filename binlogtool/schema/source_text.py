"""Helpers for generated source text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager


class SourceLines:
    """Collects lines of Python source with the current indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def __call__(self, line: str) -> None:
        """Add one line."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def indent(self) -> Iterator[None]:
        """Indent the lines inside of the `with` block one level deeper."""
        self._depth += 1
        yield
        self._depth -= 1

    def join(self) -> str:
        """Return all lines."""
        return "\n".join(self._lines) + "\n"


def make_variable_names(paths: tuple[str, ...]) -> dict[str, str]:
    """Return a Python variable for each field path, unique and readable."""
    return {path: f"v{index}_{re.sub('[^A-Za-z0-9]', '_', path)}" for index, path in enumerate(paths)}
