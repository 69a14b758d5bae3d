"""Runs tests against mutants: collected once, then a forked process for each mutant, until the first test fails."""

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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.plant import plant

SECONDS, MEMORY = 4, 4 << 30
"""CPU time (beyond thrice what the tests take) and address space of a process: who needs more is killed."""
KILLED, SURVIVED, UNREACHED = "killed", "survived", "not reached"


class Reached(NamedTuple):
    """What one test does without a mutant. lines: of the module."""

    seconds: float
    lines: frozenset[int]
    passed: bool


class Runner:
    """A plugin of pytest that runs no test by itself."""

    def __init__(self, module: str, sample: int, seed: int, seconds: float, tell: Callable[[str], None]) -> None:
        self.module, self.sample, self.seed, self.seconds, self.tell = module, sample, seed, seconds, tell
        self.results: list[tuple[Mutant, str]] = []
        self.killers: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """All mutants, one after the other."""
        module = importlib.import_module(self.module)
        file = str(Path(module.__file__ or "").resolve())
        reached: list[Reached] = self._forked(session, lambda: _survey(session.items, module.__file__ or "", file))[1]
        broken = [item.nodeid for item, one in zip(session.items, reached, strict=True) if not one.passed]
        assert not broken, f"fail without a mutant: {broken[:5]}"
        self._control(session, module, reached)
        total = sum(one.seconds for one in reached)
        self.tell(f"{self.module}: {len(reached)} tests, {total:.0f} s without a mutant")
        found = list(mutants(Path(file).read_text()))
        chosen = random.Random(self.seed).sample(found, min(self.sample, len(found))) if self.sample else found
        for mutant in chosen:
            self.results.append((mutant, self._judged(session, module, mutant, reached)))
        return True

    def _control(self, session: pytest.Session, module: Any, reached: Sequence[Reached]) -> None:
        """The module itself in its own place: no test may take it for a mistake, whatever stands before the test."""
        tests = [session.items[at] for _, at in sorted((one.seconds, at) for at, one in enumerate(reached))]

        def tried() -> str:
            plant(module, ast.parse(Path(module.__file__).read_text()))
            return _first_that_fails(tests)

        answer = self._forked(session, tried)
        assert answer == (0, ""), f"fails without a mutant: {answer}"

    def _judged(self, session: pytest.Session, module: Any, mutant: Mutant, reached: Sequence[Reached]) -> str:
        own = session.items[0].path
        items = [
            (session.items[at].path != own, one.seconds, at)
            for at, one in enumerate(reached)
            if not one.lines.isdisjoint(mutant.lines)
        ]
        if not items:
            self.tell(f"  {UNREACHED}: line {mutant.lines.start}, {mutant.name}")
            return UNREACHED
        chosen, spent = [], 0.0
        for _, seconds, at in sorted(items):
            spent += seconds
            if chosen and spent > self.seconds:
                break
            chosen.append(session.items[at])

        def tried() -> str:
            plant(module, mutant.tree(source))
            return _first_that_fails(chosen)

        source = Path(module.__file__).read_text()
        status, killer = self._forked(session, tried, 3 * spent)
        if status == 0 and killer == "":
            self.tell(f"  {SURVIVED}: line {mutant.lines.start}, {mutant.name} ({len(chosen)} of {len(items)} tests)")
            return SURVIVED
        self.killers[killer or "a process that died"] += 1
        return KILLED

    def _forked(self, session: pytest.Session, work: Callable[[], Any], seconds: float = 3000) -> tuple[int, Any]:
        """What a process of its own gives back, and how it ended; None of one that died."""
        folder = Path(tempfile.mkdtemp(prefix="binlogtool-mutant-"))
        folder.chmod(0o711)  # some tests play another user
        answer = folder / "answer"
        child = os.fork()
        if child == 0:
            try:
                _alone(session, folder, seconds)
                answer.write_bytes(pickle.dumps(work()))
            except BaseException:
                os._exit(3)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = pickle.loads(answer.read_bytes()) if answer.exists() and status == 0 else None
        shutil.rmtree(folder, ignore_errors=True)
        return status, found


def _alone(session: pytest.Session, folder: Path, seconds: float) -> None:
    """Quiet, with its own temporary files, and with bounds."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    (folder / "tmp").mkdir()
    session.config._tmp_path_factory._basetemp = folder / "tmp"  # type: ignore[attr-defined]
    limit = int(seconds + SECONDS + time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell


def _pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each with the one behind it."""
    return zip(items, [*items[1:], None], strict=True)


def _first_that_fails(items: Sequence[pytest.Item]) -> str:
    """Its name; empty if there is none."""
    return next((item.nodeid for item, following in _pairs(items) if not _passes(item, following)), "")


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Runs one test; the fixtures that it shares with the following one stay."""
    before = item.session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return item.session.testsfailed == before


def _survey(items: Sequence[pytest.Item], *files: str) -> list[Reached]:
    """Which lines of the module each test runs."""
    lines: set[int] = set()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        lines.add(frame.f_lineno)
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename in files else None

    found = []
    for item, following in _pairs(items):
        lines.clear()
        began = time.process_time()
        sys.settrace(trace)
        try:
            passed = _passes(item, following)
        finally:
            sys.settrace(None)
        found.append(Reached(time.process_time() - began, frozenset(lines), passed))
    return found
