"""Kernels that run as plain Python text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from binlogtool.log import passages
from binlogtool.log.open import Log
from binlogtool.schema.python_backend import PythonBackend


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that lets the kernels write what they can, as plain Python."""

    def switched_on() -> None:
        monkeypatch.setattr(passages, "_FEW", 0)
        monkeypatch.setattr(Log, "_passages", lambda self, file: passages.Passages(PythonBackend()).of)

    yield switched_on
