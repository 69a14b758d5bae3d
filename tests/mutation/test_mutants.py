"""Test which mistakes are made in code, how they are planted in an imported module, and how they are scored."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.__main__ import Score, add_scores
from tests.mutation.known import EQUIVALENT
from tests.mutation.mutants import iter_mutants
from tests.mutation.plant import iter_functions, plant_tree
from tests.mutation.suites import MODULES, SUITES

ROOT = Path(__file__).resolve().parent.parent.parent

SOURCE = '''
"""Words."""

LIMIT = 5


def small(value: int, most: int = 3) -> bool:
    """More words."""
    if value < 0 or value > most:
        raise ValueError(f"{value} is wrong")
    return not value


class Sum:
    @property
    def total(self) -> int:
        return 2 + 1

    @staticmethod
    def pair(value: int) -> tuple[int, int]:
        return value + 5, value + 5
'''
EXPECTED = {
    "small: 3 -> 4",
    "small: 3 -> 2",
    "small: if value < 0 or value > most: -> if not (value < 0 or value > most):",
    "small: value < 0 or value > most -> value < 0 and value > most",
    "small: value < 0 -> value <= 0",
    "small: value < 0 -> value >= 0",
    "small: 0 -> 1",
    "small: 0 -> -1",
    "small: value > most -> value >= most",
    "small: value > most -> value <= most",
    "small: raise ValueError(f'{value} is wrong') -> pass",
    "small: return not value -> return None",
    "small: not value -> value",
    "Sum.total: return 2 + 1 -> return None",
    "Sum.total: 2 + 1 -> 2 - 1",
    "Sum.total: 2 -> 3",
    "Sum.total: 2 -> 1",
    "Sum.total: 1 -> 2",
    "Sum.total: 1 -> 0",
    "Sum.pair: return (value + 5, value + 5) -> return None",
    "Sum.pair: value + 5 -> value - 5",
    "Sum.pair: value + 5 -> value - 5 (2)",
    "Sum.pair: 5 -> 6",
    "Sum.pair: 5 -> 4",
    "Sum.pair: 5 -> 6 (2)",
    "Sum.pair: 5 -> 4 (2)",
}


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """Import a module with the source above."""
    module = ModuleType("mutated_here")
    module.__file__ = str(tmp_path / "mutated_here.py")
    sys.modules[module.__name__] = module
    exec(compile(SOURCE, module.__file__, "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


def test_each_mistake_is_made_once_and_texts_and_constants_of_the_module_stay() -> None:
    names = [mutant.name for mutant in iter_mutants(SOURCE)]
    assert set(names) == EXPECTED
    assert len(names) == len(set(names))


def test_each_mutant_compiles_and_differs() -> None:
    sources = [ast.unparse(mutant.build_tree(SOURCE)) for mutant in iter_mutants(SOURCE)]
    assert len({*sources, ast.unparse(ast.parse(SOURCE))}) == len(sources) + 1


def test_a_mutant_is_planted_in_functions_methods_and_defaults(module: ModuleType) -> None:
    small, total = module.small, module.Sum()
    trees = {mutant.name: mutant.build_tree(SOURCE) for mutant in iter_mutants(SOURCE)}
    assert {function.__qualname__ for function in iter_functions(module)} == {"small", "Sum.total", "Sum.pair"}
    assert (small(0), small(3), total.total) == (True, False, 3)
    plant_tree(module, trees["small: return not value -> return None"])
    assert small(0) is None
    plant_tree(module, trees["small: 3 -> 4"])
    assert small(4) is False
    plant_tree(module, trees["Sum.total: 2 + 1 -> 2 - 1"])
    assert total.total == 1 and small(0) is True
    plant_tree(module, trees["Sum.pair: 5 -> 6 (2)"])
    assert total.pair(1) == (6, 7)


def test_the_lines_of_a_mutant_are_those_of_its_statement_without_inner_statements() -> None:
    lines = {mutant.name: mutant.lines for mutant in iter_mutants(SOURCE)}
    assert lines["small: value < 0 -> value <= 0"] == range(9, 10)
    assert lines["small: raise ValueError(f'{value} is wrong') -> pass"] == range(10, 11)


def test_the_total_score_weighs_each_module_by_its_mutants_that_differ() -> None:
    total = add_scores([Score("few", 10, 4, 2), Score("many", 40, 38, 0)])
    assert total == ("all", 50, 42, 2)
    assert (total.survivors, total.share) == (6, 42 / 48)
    assert total.to_row() == "| all | 50 | 42 | 2 | 6 | 87.5 % |"
    assert Score("none", 3, 0, 3).share == 0.0


@pytest.mark.parametrize("name", EQUIVALENT)
def test_each_equivalent_mutant_can_be_made(name: str) -> None:
    source = (ROOT / "binlogtool" / Path(*name.split("."))).with_suffix(".py").read_text()
    assert set(EQUIVALENT[name]) <= {mutant.name for mutant in iter_mutants(source)}


def test_each_module_and_test_file_of_the_suites_exists() -> None:
    modules = [(ROOT / "binlogtool" / Path(*name.split("."))).with_suffix(".py") for name in MODULES]
    files = [ROOT / "tests" / path for suite in SUITES for path in suite.files]
    assert [path for path in (*modules, *files) if not path.is_file()] == []
    assert set(EQUIVALENT) <= set(MODULES)
