"""Modules do not need each other in a circle, also not by an import inside a function."""

from __future__ import annotations

import ast

import pytest

from tests.package_figures.modules import ROOT, Code, circles, imported

CODE = Code(ROOT)


@pytest.mark.full
def test_nothing_is_loaded_in_a_circle() -> None:
    assert circles(CODE.loaded) == []


def test_no_module_closes_a_circle_by_an_import_inside_a_function() -> None:
    assert CODE.closing() == set()


def test_circles_are_found_also_through_functions() -> None:
    code = {
        "p.a": "from p import b\n",
        "p.b": "def f():\n    import p.c\n",
        "p.c": "from p.a import x\nif TYPE_CHECKING:\n    from p import d\n",
        "p.d": "import p.a\n",
    }
    edges = {name: imported(ast.parse(text), set(code)) for name, text in code.items()}
    assert circles(edges) == [{"p.a", "p.b", "p.c"}]
    assert edges["p.b"] == {"p.c": False} and edges["p.c"] == {"p.a": True}
