"""The mistakes that are made in code, and how they get into a module that is imported already."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.known import EQUIVALENT
from tests.mutation.mutants import mutants
from tests.mutation.plant import functions, plant
from tests.mutation.suites import SUITES

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
}


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    """One that is imported."""
    made = ModuleType("mutated_here")
    made.__file__ = str(tmp_path / "mutated_here.py")
    sys.modules[made.__name__] = made
    exec(compile(SOURCE, made.__file__, "exec"), vars(made))
    yield made
    del sys.modules[made.__name__]


def test_every_mistake_is_made_once_and_words_and_constants_of_the_module_are_left_alone() -> None:
    names = [one.name for one in mutants(SOURCE)]
    assert set(names) == EXPECTED
    assert len(names) == len(set(names))


def test_every_mutant_can_be_compiled_and_differs() -> None:
    made = [ast.unparse(one.tree(SOURCE)) for one in mutants(SOURCE)]
    assert len({*made, ast.unparse(ast.parse(SOURCE))}) == len(made) + 1


def test_a_mutant_is_planted_in_functions_methods_and_defaults(module: ModuleType) -> None:
    small, total = module.small, module.Sum()
    planted = {one.name: one.tree(SOURCE) for one in mutants(SOURCE)}
    assert {one.__qualname__ for one in functions(module)} == {"small", "Sum.total"}
    assert (small(0), small(3), total.total) == (True, False, 3)
    plant(module, planted["small: return not value -> return None"])
    assert small(0) is None
    plant(module, planted["small: 3 -> 4"])
    assert small(4) is False
    plant(module, planted["Sum.total: 2 + 1 -> 2 - 1"])
    assert total.total == 1 and small(0) is True


def test_the_lines_of_a_mutant_are_those_of_its_statement_without_what_is_in_it() -> None:
    lines = {one.name: one.lines for one in mutants(SOURCE)}
    assert lines["small: value < 0 -> value <= 0"] == range(9, 10)
    assert lines["small: raise ValueError(f'{value} is wrong') -> pass"] == range(10, 11)


@pytest.mark.parametrize("name", EQUIVALENT)
def test_what_is_known_to_mean_the_same_is_a_mutant_that_can_be_made(name: str) -> None:
    source = (ROOT / "binlogtool" / Path(*name.split("."))).with_suffix(".py").read_text()
    assert set(EQUIVALENT[name]) <= {one.name for one in mutants(source)}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SUITES)
def test_nine_of_ten_mistakes_are_noticed_and_every_other_one_is_explained(name: str) -> None:
    command = [sys.executable, "-m", "tests.mutation", name]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
