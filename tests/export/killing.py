"""Runs of `convert --append` that are killed between two chosen system calls, and where in their work that was.

A run is first tried on a copy of the output: how many system calls it makes in each phase. Then one of them is chosen,
in the phase that was hit least so far, and the run proper is stopped there and killed. A run that came to its end all
the same (its log had grown meanwhile, or a thread was quicker) is no kill. How far it had come is read from the disk.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.export.appending import append, commit

NIGHTLY = 200
"""So many processes die in each of the nightly runs."""

READING, WRITING, MOVED, COMMITTING, COMMITTED = PHASES = (
    "before the part", "part being written and proven", "part moved in", "commit being written", "commit moved in"
)  # fmt: skip
"""What a killed run leaves on the disk: nothing; a pending part; a part; a pending commit; a commit."""

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_TELL_SYSCALLS, _KILL_WITH_TRACER = 1, 0x100000
_AT_SYSCALL = signal.SIGTRAP | 0x80
_PENDING_COMMIT = re.compile(r"pending-\d+")


def can_trace() -> bool:
    """May processes stop others at their system calls here?"""
    if sys.platform != "linux":
        return False
    child = _traced(lambda: None)
    stopped = _libc.ptrace(_SYSCALL, child, None, 0) == 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return stopped


def phase_of(out: Path, before: int) -> str:
    """How far a run that is, or was, at work behind commit `before` has come."""
    folder = out / "_binlogtool"
    if (folder / f"{before + 1}.json").exists():
        return COMMITTED
    names = os.listdir(folder) if folder.exists() else []
    if any(map(_PENDING_COMMIT.fullmatch, names)):
        return COMMITTING
    if any(out.glob(f"part-{before + 1:08d}.*")):
        return MOVED
    return WRITING if any(name.startswith("pending-part") for name in names) else READING


class Killer:
    """Kills runs. hits: how many died in each phase. ended: how many came to their end, wanted or not."""

    def __init__(self, chance: random.Random, to: str) -> None:
        self.hits, self.ended = Counter[str](), 0
        self._chance, self._to = chance, to

    @property
    def kills(self) -> int:
        """Processes that were at work and died of SIGKILL."""
        return self.hits.total()

    def __str__(self) -> str:
        told = ", ".join(f"{self.hits[phase]} {phase}" for phase in PHASES)
        return f"{self.kills} killed ({told}), {self.ended} came to their end"

    def demand_spread(self, wanted: int) -> None:
        """So many were killed, in all phases."""
        print(self)
        assert self.kills == wanted
        assert all(self.hits[phase] >= wanted // 10 for phase in PHASES), self

    def kill(self, log: Path, out: Path, trial: Path) -> bool:
        """One run that is to be killed. trial: a place for a copy of the output.

        False = there is nothing new in the log, and enough of such runs were killed: write more.
        """
        before = commit(out).get("number", 0)
        calls = self._tried(log, out, trial, before)
        if set(calls) == {READING} and self.hits[READING] > min(self.hits[phase] for phase in PHASES):
            return False
        wanted = min(calls, key=lambda one: (self.hits[one], PHASES.index(one)))
        left = self._chance.randint(1, calls[wanted])

        def is_there() -> bool:
            nonlocal left
            left -= phase_of(out, before) == wanted
            return left <= 0

        status = self._run(log, out, is_there)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            self.hits[phase_of(out, before)] += 1
        else:
            assert os.WEXITSTATUS(status) == 0
            self.ended += 1
        return True

    def through(self, log: Path, out: Path, *, final: bool = False) -> None:
        """One run that nobody kills."""
        assert append(log, out, self._to, final=final).exit_code == 0
        self.ended += 1

    def _tried(self, log: Path, out: Path, trial: Path, before: int) -> Counter[str]:
        """How many stops at system calls a run has in each phase."""
        shutil.rmtree(trial, ignore_errors=True)
        if out.exists():
            shutil.copytree(out, trial, copy_function=os.link)  # files of an output are never written again
        calls = Counter[str]()

        def look() -> bool:
            calls[phase_of(trial, before)] += 1
            return False

        status = self._run(log, trial, look)
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, status
        return calls

    def _run(self, log: Path, out: Path, stop: Callable[[], bool]) -> int:
        """Runs to the end, or until `stop` says so at a system call, and is killed; the status of the process."""
        child, at_call = _traced(lambda: append(log, out, self._to)), False
        while True:
            if at_call and stop():
                os.kill(child, signal.SIGKILL)
                return os.waitpid(child, 0)[1]
            _libc.ptrace(_SYSCALL, child, None, 0)
            status = os.waitpid(child, 0)[1]
            if not os.WIFSTOPPED(status):
                return status
            at_call = os.WSTOPSIG(status) == _AT_SYSCALL


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_long)
_libc.ptrace.restype = ctypes.c_long


def _traced(work: Callable[[], object]) -> int:
    """A child that stands before `work`, and stops before and behind each system call of its main thread."""
    child = os.fork()
    if not child:
        status = 1
        try:
            if _libc.ptrace(_TRACEME, 0, None, 0) == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                work()
                status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    if os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]):
        _libc.ptrace(_SETOPTIONS, child, None, _TELL_SYSCALLS | _KILL_WITH_TRACER)
    return child
