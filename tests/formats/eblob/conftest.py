"""The format is in the registry, whether its line is there already or not."""

from __future__ import annotations

import pytest

from binlogtool import formats


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formats._BUILT_IN, "eblob", "binlogtool.formats.eblob")
