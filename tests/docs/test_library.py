"""The examples of docs/library.md give what they say."""

from __future__ import annotations

import doctest

import pytest

from tests.docs.pages import ROOT


def test_the_examples_of_the_library_give_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "library.md"), module_relative=False, encoding="utf-8")
    assert failed == 0 and tried > 20
