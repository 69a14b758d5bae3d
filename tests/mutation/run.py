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
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import pytest

from tests.mutation.mutants import Mutant, iter_mutants
from tests.mutation.plant import plant_tree

EXTRA_CPU_S, MEMORY_LIMIT = 4, 4 << 30
"""CPU time, beyond three times what the tests take, and address space of a process: one that needs more is killed."""
KILLED, SURVIVED, UNREACHED = "killed", "survived", "not reached"
NOT_PLANTED = "the mutant could not be planted"


class TestRun(NamedTuple):
    """One test without a mutant: CPU time, lines of the module that it ran, whether it passed."""

    __test__ = False
    seconds: float
    lines: frozenset[int]
    passed: bool


class MutationRunner:
    """A plugin of pytest that runs the collected tests against mutants instead of once."""

    def __init__(self, module: str, sample: int, seed: int, seconds: float, report: Callable[[str], None]) -> None:
        self.module, self.sample, self.seed, self.seconds, self.report = module, sample, seed, seconds, report
        self.results: list[tuple[Mutant, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all mutants, one after the other."""
        module = importlib.import_module(self.module)
        file = str(Path(module.__file__ or "").resolve())
        runs: list[TestRun] = _run_in_fork(
            session, lambda: _trace_tests(session.items, module.__file__ or "", file)
        ).result
        assert runs is not None, "the process that runs the tests without a mutant died"
        failures = [item.nodeid for item, run in zip(session.items, runs, strict=True) if not run.passed]
        assert not failures, f"fail without a mutant: {failures[:5]}"
        self._check_original(session, module, runs)
        total = sum(run.seconds for run in runs)
        self.report(f"{self.module}: {len(runs)} tests, {total:.0f} s without a mutant")
        mutants = list(iter_mutants(Path(file).read_text()))
        if self.sample:
            mutants = random.Random(self.seed).sample(mutants, min(self.sample, len(mutants)))
        for mutant in mutants:
            self.results.append((mutant, self._test_mutant(session, module, mutant, runs)))
        return True

    def _check_original(self, session: pytest.Session, module: ModuleType, runs: Sequence[TestRun]) -> None:
        """Plant the module itself: no test may take it for a mistake, whatever runs before the test."""
        tests = [session.items[index] for _, index in sorted((run.seconds, index) for index, run in enumerate(runs))]
        source = Path(module.__file__ or "").read_text()
        outcome = _run_in_fork(session, lambda: _plant_and_test(module, ast.parse(source), tests))
        assert outcome == (0, ""), f"fails without a mutant: {outcome}"

    def _test_mutant(self, session: pytest.Session, module: ModuleType, mutant: Mutant, runs: Sequence[TestRun]) -> str:
        first_file = session.items[0].path
        reaching = sorted(
            (session.items[index].path != first_file, run.seconds, index)
            for index, run in enumerate(runs)
            if not run.lines.isdisjoint(mutant.lines)
        )
        if not reaching:
            self.report(f"  {UNREACHED}: line {mutant.lines.start}, {mutant.name}")
            return UNREACHED
        tests, spent = [], 0.0
        for _, seconds, index in reaching:
            spent += seconds
            if tests and spent > self.seconds:
                break
            tests.append(session.items[index])
        tree = mutant.build_tree(Path(module.__file__ or "").read_text())
        outcome = _run_in_fork(session, lambda: _plant_and_test(module, tree, tests), 3 * spent)
        assert outcome.result != NOT_PLANTED, f"{NOT_PLANTED}: {mutant.name}"
        if outcome == (0, ""):
            counts = f"{len(tests)} of {len(reaching)} tests"
            self.report(f"  {SURVIVED}: line {mutant.lines.start}, {mutant.name} ({counts})")
            return SURVIVED
        return KILLED


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
            _isolate(session, folder, seconds)
            result_file.write_bytes(pickle.dumps(work()))
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    result = pickle.loads(result_file.read_bytes()) if result_file.exists() and status == 0 else None
    shutil.rmtree(folder, ignore_errors=True)
    return ForkOutcome(status, result)


def _plant_and_test(module: ModuleType, tree: ast.Module, tests: Sequence[pytest.Item]) -> str:
    """Plant a tree, then run the tests; return the name of the first that fails, empty if none does."""
    try:
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


def _trace_tests(items: Sequence[pytest.Item], *files: str) -> list[TestRun]:
    """Run each test and record which lines of the module it runs."""
    lines: set[int] = set()

    def trace_line(frame: FrameType, event: str, _: Any) -> Any:
        lines.add(frame.f_lineno)
        return trace_line

    def trace_call(frame: FrameType, event: str, _: Any) -> Any:
        return trace_line if frame.f_code.co_filename in files else None

    runs = []
    for item, following in _iter_pairs(items):
        lines.clear()
        began = time.process_time()
        sys.settrace(trace_call)
        try:
            passed = _run_test(item, following)
        finally:
            sys.settrace(None)
        runs.append(TestRun(time.process_time() - began, frozenset(lines), passed))
    return runs
