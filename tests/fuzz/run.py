"""Inputs in worker processes with ceilings of CPU time and address space; what fails is made small and kept."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.check import ENGINES, checked
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import Seed

SECONDS = 20
"""CPU time that one input may take, all of it: the process dies after that."""
MEMORY = 2 << 30
"""Address space of a worker beside what it began with: libraries that a test loaded may have taken several GiB."""
KEPT = 3
"""Failures of one kind that are saved; others are counted."""
EACH_ENGINE, EACH_DEEP = 4, 8
"""Every so many inputs go through all backends, and through the other commands."""


class Order(NamedTuple):
    """What is to be done. repair: the first so many inputs are also repaired. save: where failures go.

    engines: backends; the first one sees every input.
    """

    target: str
    count: int
    seed: int
    repair: int
    jobs: int
    save: Path
    scratch: Path
    engines: tuple[str, ...] = ENGINES

    def engines_for(self, number: int) -> tuple[str, ...]:
        """The backends that see one input."""
        return self.engines if number % EACH_ENGINE == 0 else self.engines[:1]


@dataclass
class Summary:
    """What came of it."""

    inputs: int = 0
    bytes: int = 0
    seconds: float = 0.0
    refused: int = 0
    engines: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    saved: list[str] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        """What another worker did."""
        for name in ("inputs", "bytes", "seconds", "refused", "engines"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("repairs", "ids", "failures"):
            getattr(self, name).update(getattr(other, name))
        self.saved += other.saved


def made(seeds: Sequence[Seed], number: int) -> tuple[Seed, random.Random]:
    """The input of this number, and the generator for what is chosen after it."""
    rng = random.Random(f"{seeds[0].target} {number}")
    return mutated(rng, seeds), made_choices(number)


# -- workers -----------------------------------------------------------------------------------------------------------


def run(order: Order, seeds: Sequence[Seed], tell: Callable[[str], None] = print) -> Summary:
    """All inputs of an order, on `jobs` processes; one that dies is replaced, and its input is a failure."""
    context = multiprocessing.get_context("fork")
    total, workers = Summary(), {}
    for job in range(order.jobs):
        workers[job] = _started(context, order, seeds, job, order.seed + job)
    while workers:
        ready = multiprocessing.connection.wait([pipe for _, pipe, _ in workers.values()])
        for job, (process, pipe, at) in list(workers.items()):
            if pipe not in ready:
                continue
            try:
                total.add(pipe.recv())
                process.join()
                del workers[job]
            except EOFError:
                process.join()
                if (number := at.value) < 0:
                    raise RuntimeError(f"a worker died before its first input: status {process.exitcode}") from None
                _died(order, seeds, number, process.exitcode or 0, total)
                workers[job] = _started(context, order, seeds, job, number + order.jobs)
    return total


def _started(context: Any, order: Order, seeds: Sequence[Seed], job: int, first: int) -> tuple[Any, Connection, Any]:
    ours, theirs = context.Pipe(duplex=False)
    at = context.Value("q", -1)
    process = context.Process(target=_work, args=(order, seeds, first, at, theirs, job))
    process.start()
    theirs.close()
    return process, ours, at


def _work(order: Order, seeds: Sequence[Seed], first: int, at: Any, pipe: Connection, job: int) -> None:
    most = _taken() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    scratch = order.scratch / f"{order.target}-{os.getpid()}"
    out = Summary()
    _allow(10 * SECONDS)
    with contextlib.suppress(AssertionError):  # a file that fails as it is fails again, as an input
        checked(seeds[0], random.Random(0), scratch, order.engines, False, True)  # what is compiled once is no input's
    for number in range(first, order.seed + order.count, order.jobs):
        at.value = number
        _allow(SECONDS)
        try:
            seed, rng = made(seeds, number)
            repair = number - order.seed < order.repair
            done = checked(seed, rng, scratch, order.engines_for(number), repair, number % EACH_DEEP == 0)
            out.refused += done.refused
            out.repairs[done.repaired] += 1
            out.ids.update(done.ids)
            out.bytes += len(seed.data)
        except Exception as error:
            _allow(10 * SECONDS)
            _failed(order, seeds, number, scratch, error, out)
        out.inputs += 1
        out.engines += len(order.engines_for(number)) > 1
    out.seconds = time.process_time()
    shutil.rmtree(scratch, ignore_errors=True)
    pipe.send(out)
    pipe.close()


def _taken() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _allow(seconds: int) -> None:
    """So much CPU time from now on."""
    used = int(time.process_time())
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, hard))


# -- failures ----------------------------------------------------------------------------------------------------------


def _died(order: Order, seeds: Sequence[Seed], number: int, status: int, out: Summary) -> None:
    kind = f"the process died: {signal.Signals(-status).name if status < 0 else status}"
    out.failures[kind] += 1
    out.inputs += 1
    out.saved.append(saved(order, made(seeds, number)[0], number, kind))


def _failed(order: Order, seeds: Sequence[Seed], number: int, scratch: Path, error: Exception, out: Summary) -> None:
    kind = kind_of(error)
    out.failures[kind] += 1
    if out.failures[kind] > KEPT:
        return
    seed, _ = made(seeds, number)
    repair = number - order.seed < order.repair
    text = "".join(traceback.format_exception(error))

    def fails(data: bytes) -> bool:
        """In the same way?"""
        try:
            other = seed._replace(data=data)
            checked(other, made_choices(number), scratch, order.engines_for(number), repair, number % EACH_DEEP == 0)
        except Exception as again:
            return kind_of(again) == kind
        return False

    out.saved.append(saved(order, seed._replace(data=smaller(seed.data, fails)), number, text))


def kind_of(error: BaseException) -> str:
    """Failures at one place, with one kind of words, are one: numbers are left out."""
    frames = traceback.extract_tb(error.__traceback__)
    place = frames[-1] if frames else None
    words = "".join(one for one in str(error).split(":")[0] if not one.isdigit())[:80]
    where = f"{Path(place.filename).name}:{place.lineno}" if place else ""
    return f"{type(error).__name__} at {where}: {words}"


def saved(order: Order, seed: Seed, number: int, text: str) -> str:
    """Keeps an input: its files, and how to run it again."""
    folder = order.save / f"{order.target}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / Path(seed.name).name).write_bytes(seed.data)
    for name, data in seed.beside:
        (folder / name).write_bytes(data)
    whole = f"python -m tests.fuzz {order.target} --seed {number} --count 1 --repair 1"
    small = f"python -m tests.fuzz {order.target} --seed {number} --input {folder / Path(seed.name).name}"
    (folder / "failure.txt").write_text(f"{text}\nmade from {seed.name}\n{whole}\n{small}\n")
    return str(folder)


def smaller(data: bytes, fails: Callable[[bytes], bool], seconds: float = 20) -> bytes:
    """The input with pieces left out, as long as it fails in the same way."""
    end, size = time.monotonic() + seconds, max(len(data) // 2, 1)
    while size and time.monotonic() < end:
        at, before = 0, len(data)
        while at < len(data) and time.monotonic() < end:
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data = shorter
            else:
                at += size
        size = size if len(data) < before else size // 2
    return data


def made_choices(number: int) -> random.Random:
    """For the choice of what is asked of a repair."""
    return random.Random(number)


@contextlib.contextmanager
def scratch_folder() -> Any:
    """In memory where there is such a file system: nothing waits for a disk."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="binlogtool-fuzz-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
