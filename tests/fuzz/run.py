"""Run inputs in worker processes with limits of CPU time and address space; shrink and save those that fail."""

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

from tests.fuzz.check import ENGINES, check_input
from tests.fuzz.mutate import mutate_seed
from tests.fuzz.seeds import Seed

SECONDS = 20
"""CPU time that one input may take in all: the process is killed after that."""
MEMORY = 2 << 30
"""Address space of a worker beside what it began with: libraries that a test loaded may have taken several GiB."""
KEPT = 3
"""Failures of one kind that are saved; others are counted."""
EACH_ENGINE, EACH_DEEP = 4, 8
"""One of so many inputs goes through all backends, and one through the other commands."""


class Order(NamedTuple):
    """Options of a run. repair: how many of the first inputs are also repaired. save: the folder for failures.

    engines: backends; the first one reads every input.
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
        """Return the backends that read one input."""
        return self.engines if number % EACH_ENGINE == 0 else self.engines[:1]


@dataclass
class Summary:
    """Counts of a run."""

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
        """Add the counts of another worker."""
        for name in ("inputs", "bytes", "seconds", "refused", "engines"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("repairs", "ids", "failures"):
            getattr(self, name).update(getattr(other, name))
        self.saved += other.saved


def make_input(seeds: Sequence[Seed], number: int) -> tuple[Seed, random.Random]:
    """Make the input of this number, and the generator of the choices after it."""
    rng = random.Random(f"{seeds[0].target} {number}")
    return mutate_seed(rng, seeds), make_choice_rng(number)


# -- workers -----------------------------------------------------------------------------------------------------------


def run(order: Order, seeds: Sequence[Seed], report: Callable[[str], None] = print) -> Summary:
    """Run all inputs of an order in `jobs` processes; a process that dies is replaced, and its input is a failure."""
    context = multiprocessing.get_context("fork")
    total, workers = Summary(), {}
    for job in range(order.jobs):
        workers[job] = _start_worker(context, order, seeds, job, order.seed + job)
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
                _record_death(order, seeds, number, process.exitcode or 0, total)
                workers[job] = _start_worker(context, order, seeds, job, number + order.jobs)
    return total


def _start_worker(
    context: Any, order: Order, seeds: Sequence[Seed], job: int, first: int
) -> tuple[Any, Connection, Any]:
    ours, theirs = context.Pipe(duplex=False)
    at = context.Value("q", -1)
    process = context.Process(target=_work, args=(order, seeds, first, at, theirs, job))
    process.start()
    theirs.close()
    return process, ours, at


def _work(order: Order, seeds: Sequence[Seed], first: int, at: Any, pipe: Connection, job: int) -> None:
    address_space = _get_address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    scratch = order.scratch / f"{order.target}-{os.getpid()}"
    out = Summary()
    _limit_cpu_time(10 * SECONDS)
    with contextlib.suppress(AssertionError):  # a file that fails as it is fails again, as an input
        check_input(seeds[0], random.Random(0), scratch, order.engines, False, True)  # compiles what the inputs share
    for number in range(first, order.seed + order.count, order.jobs):
        at.value = number
        _limit_cpu_time(SECONDS)
        try:
            seed, rng = make_input(seeds, number)
            repair = number - order.seed < order.repair
            done = check_input(seed, rng, scratch, order.engines_for(number), repair, number % EACH_DEEP == 0)
            out.refused += done.refused
            out.repairs[done.repaired] += 1
            out.ids.update(done.ids)
            out.bytes += len(seed.data)
        except Exception as error:
            _limit_cpu_time(10 * SECONDS)
            _record_failure(order, seeds, number, scratch, error, out)
        out.inputs += 1
        out.engines += len(order.engines_for(number)) > 1
    out.seconds = time.process_time()
    shutil.rmtree(scratch, ignore_errors=True)
    pipe.send(out)
    pipe.close()


def _get_address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _limit_cpu_time(seconds: int) -> None:
    """Limit the CPU time from now on."""
    used = int(time.process_time())
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, hard))


# -- failures ----------------------------------------------------------------------------------------------------------


def _record_death(order: Order, seeds: Sequence[Seed], number: int, status: int, out: Summary) -> None:
    kind = f"the process died: {signal.Signals(-status).name if status < 0 else status}"
    out.failures[kind] += 1
    out.inputs += 1
    out.saved.append(save_failure(order, make_input(seeds, number)[0], number, kind))


def _record_failure(
    order: Order, seeds: Sequence[Seed], number: int, scratch: Path, error: Exception, out: Summary
) -> None:
    kind = get_failure_kind(error)
    out.failures[kind] += 1
    if out.failures[kind] > KEPT:
        return
    seed, _ = make_input(seeds, number)
    repair = number - order.seed < order.repair
    text = "".join(traceback.format_exception(error))

    def fails(data: bytes) -> bool:
        """Return True if this input fails in the same way."""
        try:
            other = seed._replace(data=data)
            check_input(
                other, make_choice_rng(number), scratch, order.engines_for(number), repair, number % EACH_DEEP == 0
            )
        except Exception as again:
            return get_failure_kind(again) == kind
        return False

    out.saved.append(save_failure(order, seed._replace(data=shrink(seed.data, fails)), number, text))


def get_failure_kind(error: BaseException) -> str:
    """Return the place and the message without numbers: failures that agree in them count as one."""
    frames = traceback.extract_tb(error.__traceback__)
    place = frames[-1] if frames else None
    words = "".join(character for character in str(error).split(":")[0] if not character.isdigit())[:80]
    where = f"{Path(place.filename).name}:{place.lineno}" if place else ""
    return f"{type(error).__name__} at {where}: {words}"


def save_failure(order: Order, seed: Seed, number: int, text: str) -> str:
    """Save an input: its files, and the commands that run it again."""
    folder = order.save / f"{order.target}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / Path(seed.name).name).write_bytes(seed.data)
    for name, data in seed.beside:
        (folder / name).write_bytes(data)
    whole = f"python -m tests.fuzz {order.target} --seed {number} --count 1 --repair 1"
    small = f"python -m tests.fuzz {order.target} --seed {number} --input {folder / Path(seed.name).name}"
    (folder / "failure.txt").write_text(f"{text}\nmade from {seed.name}\n{whole}\n{small}\n")
    return str(folder)


def shrink(data: bytes, fails: Callable[[bytes], bool], seconds: float = 20) -> bytes:
    """Leave pieces out of the input while it fails in the same way."""
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


def make_choice_rng(number: int) -> random.Random:
    """Return the generator that chooses the policy of a repair."""
    return random.Random(number)


@contextlib.contextmanager
def scratch_folder() -> Any:
    """Make a temporary folder, in memory where there is such a file system."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="binlogtool-fuzz-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
