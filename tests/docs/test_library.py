"""The Python examples of the pages give what they say."""

from __future__ import annotations

import doctest

import pytest

from tests.docs.pages import ROOT


@pytest.mark.parametrize(("page", "examples"), [("library.md", 20), ("schema.md", 31)])
def test_the_python_examples_of_a_page_give_what_they_say(
    page: str, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testfile(str(ROOT / "docs" / page), module_relative=False, encoding="utf-8")
    assert failed == 0 and tried >= examples
