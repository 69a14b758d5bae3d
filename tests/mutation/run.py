"""Run tests against mutants: collect once, then fork a process for each mutant, until the first test fails."""

from __future__ import annotations

import ast
import importlib
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import pytest

from tests.mutation.mutants import Mutant, iter_mutants
from tests.mutation.plant import plant_tree

EXTRA_CPU_S, MEMORY_LIMIT = 4, 4 << 30
"""CPU time, beyond three times what the tests take, and address space of a process: one that needs more is killed."""
KILLED, SURVIVED, UNREACHED = "killed", "survived", "not reached"
NOT_PLANTED = "not a program that can be planted"
"""Such as a `nonlocal` name without its assignment; these are no mutants."""


class TestRun(NamedTuple):
    """One test without a mutant: CPU time, lines of each module that it ran by file, whether it passed."""

    __test__ = False
    seconds: float
    lines: dict[str, frozenset[int]]
    passed: bool


class MutantResult(NamedTuple):
    """A mutant of a module and what became of it: KILLED, SURVIVED or UNREACHED."""

    module: str
    mutant: Mutant
    state: str


class MutationRunner:
    """A plugin of pytest that runs the collected tests against mutants instead of once.

    modules: full names. sample: mutants of each module; 0: all. seconds: CPU time of the tests of one mutant.
    """

    def __init__(
        self, modules: Sequence[str], sample: int, seed: int, seconds: float, report: Callable[[str], None]
    ) -> None:
        self.modules, self.sample, self.seed, self.seconds, self.report = modules, sample, seed, seconds, report
        self.results: list[MutantResult] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all mutants, one after the other, fast tests first."""
        modules = [importlib.import_module(name) for name in self.modules]
        files = [str(module.__file__) for module in modules]
        runs: list[TestRun] | None = _run_in_fork(session, lambda: _trace_tests(session.items, files)).result
        assert runs is not None, "the process that runs the tests without a mutant died"
        failures = [item.nodeid for item, run in zip(session.items, runs, strict=True) if not run.passed]
        assert not failures, f"fail without a mutant: {failures[:5]}"
        order = sorted(range(len(runs)), key=lambda index: runs[index].seconds)
        tests = [(session.items[index], runs[index]) for index in order]
        _check_originals(session, modules, [item for item, _ in tests])
        self.report(f"{len(runs)} tests, {sum(run.seconds for run in runs):.0f} s without a mutant")
        for module, file in zip(modules, files, strict=True):
            mutants = list(iter_mutants(Path(file).read_text()))
            if self.sample:
                mutants = random.Random(self.seed).sample(mutants, min(self.sample, len(mutants)))
            for mutant in mutants:
                state = self._test_mutant(session, module, mutant, tests)
                if state != NOT_PLANTED:
                    self.results.append(MutantResult(module.__name__, mutant, state))
        return True

    def _test_mutant(
        self, session: pytest.Session, module: ModuleType, mutant: Mutant, tests: Sequence[tuple[pytest.Item, TestRun]]
    ) -> str:
        file = str(module.__file__)
        chosen, spent, reaching = [], 0.0, 0
        for item, run in tests:
            if run.lines.get(file, frozenset()).isdisjoint(mutant.lines):
                continue
            reaching += 1
            if not chosen or spent + run.seconds <= self.seconds:
                spent += run.seconds
                chosen.append(item)
        place = f"{module.__name__}, line {mutant.lines.start}, {mutant.name}"
        if not chosen:
            self.report(f"  {UNREACHED}: {place}")
            return UNREACHED
        tree = mutant.build_tree(Path(file).read_text())
        outcome = _run_in_fork(session, lambda: _plant_and_test([(module, tree)], chosen), 3 * spent)
        if outcome.result == NOT_PLANTED:
            self.report(f"  left out, {NOT_PLANTED}: {place}")
            return NOT_PLANTED
        if outcome == (0, ""):
            self.report(f"  {SURVIVED}: {place} ({len(chosen)} of {reaching} tests)")
            return SURVIVED
        return KILLED


def _check_originals(session: pytest.Session, modules: Sequence[ModuleType], tests: Sequence[pytest.Item]) -> None:
    """Plant the modules themselves: no test may take them for mistakes, in the order of the tests of a mutant."""
    trees = [(module, ast.parse(Path(str(module.__file__)).read_text())) for module in modules]
    outcome = _run_in_fork(session, lambda: _plant_and_test(trees, tests))
    assert outcome == (0, ""), f"fails without a mutant: {outcome}"


class ForkOutcome(NamedTuple):
    """The wait status of a forked process, and what its function returned; None if it died."""

    status: int
    result: Any


def _run_in_fork(session: pytest.Session, work: Callable[[], Any], seconds: float = 3000) -> ForkOutcome:
    """Run the function in a forked process with its own temporary files."""
    folder = Path(tempfile.mkdtemp(prefix="binlogtool-mutant-"))
    folder.chmod(0o711)  # some tests change to another user
    result_file = folder / "result"
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            _isolate(session, folder, seconds)
            result_file.write_bytes(pickle.dumps(work()))
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):  # servers of fixtures that were not torn down
        os.killpg(child, signal.SIGKILL)
    result = pickle.loads(result_file.read_bytes()) if result_file.exists() and status == 0 else None
    shutil.rmtree(folder, ignore_errors=True)
    return ForkOutcome(status, result)


def _plant_and_test(trees: Sequence[tuple[ModuleType, ast.Module]], tests: Sequence[pytest.Item]) -> str:
    """Plant the trees, then run the tests; return the name of the first that fails, empty if none does."""
    try:
        for module, tree in trees:
            plant_tree(module, tree)
    except Exception:
        return NOT_PLANTED
    return next((item.nodeid for item, following in _iter_pairs(tests) if not _run_test(item, following)), "")


def _isolate(session: pytest.Session, folder: Path, seconds: float) -> None:
    """Silence this process, give it temporary files of its own, and limit its time and memory."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    (folder / "tmp").mkdir()
    session.config._tmp_path_factory._basetemp = folder / "tmp"  # type: ignore[attr-defined]
    limit = int(seconds + EXTRA_CPU_S + time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell


def _iter_pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Pair each test with the one after it."""
    return zip(items, [*items[1:], None], strict=True)


def _run_test(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one test and keep the fixtures that it shares with the following one; return whether it passed."""
    failed_before = item.session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return item.session.testsfailed == failed_before


def _trace_tests(items: Sequence[pytest.Item], files: Sequence[str]) -> list[TestRun]:
    """Run each test and record which lines of the files it runs."""
    lines: dict[str, set[int]] = {file: set() for file in files}

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        lines[frame.f_code.co_filename].add(frame.f_lineno)
        return trace_line

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        return trace_line if frame.f_code.co_filename in lines else None

    runs = []
    for item, following in _iter_pairs(items):
        for numbers in lines.values():
            numbers.clear()
        began = time.process_time()
        sys.settrace(trace_call)
        try:
            passed = _run_test(item, following)
        finally:
            sys.settrace(None)
        reached = {file: frozenset(numbers) for file, numbers in lines.items() if numbers}
        runs.append(TestRun(time.process_time() - began, reached, passed))
    return runs
