"""`python -m tests.fuzz.hostile FORMAT --count N [--sanitize]`: commands over hostile content under right checksums.

With --sanitize the native library is built with AddressSanitizer and UndefinedBehaviourSanitizer, and this program runs
again with it (docs/reliability/fuzz.md).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz import sanitizers
from tests.fuzz.commands import Fault, calls_for, check_call, warm
from tests.fuzz.content import TARGETS, content_seeds, make_hostile_seed
from tests.fuzz.run import scratch_folder
from tests.fuzz.seeds import Seed
from tests.golden.runner import prepare_process

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = Path(os.environ.get("BINLOGTOOL_CORPUS", ROOT.parent / "shared" / "corpus"))
BACKENDS = ("native", "python")
KEPT = 3
SECONDS = 60
"""CPU time that one input may take, all of its commands; the worker is killed after that."""


class Order(NamedTuple):
    """What to run. calls: for each input; both: every so many inputs go through both backends."""

    target: str
    count: int
    first: int
    calls: int
    both: int
    save: Path
    seconds: float = 0.0


@dataclass
class Summary:
    """What came of it. statuses: exit statuses of calls; examples: the first inputs of each kind of fault."""

    inputs: int = 0
    calls: int = 0
    compared: int = 0
    cpu: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def row(self, target: str) -> str:
        """A line of the table in docs/reliability/fuzz.md."""
        ends = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        cells = f"{self.inputs:,}", f"{self.calls:,}", f"{self.compared:,}", f"{self.cpu:,.0f}", ends
        return f"| {target} | {' | '.join(cells)} | {self.faults.total()} |"


def main() -> int:
    """Run what the command line says; 1 if there was a fault."""
    options = _arguments()
    if options.sanitize and not sanitizers.loaded():
        try:
            sanitizers.restart([sys.executable, "-m", "tests.fuzz.hostile", *sys.argv[1:]])
        except sanitizers.UnavailableError as error:
            print(f"not run: {error}", file=sys.stderr)
            return 3
    status = 0
    for target in TARGETS if options.format == "all" else options.format.split(","):
        order = Order(
            target, options.count, options.seed, options.calls, options.both, options.save.resolve(), options.seconds
        )
        sources = content_seeds(CORPUS, target)
        if not sources:
            print(f"not run: no files of {target} in {CORPUS} (BINLOGTOOL_CORPUS)", file=sys.stderr)
            return 3
        done = run(order, sources)
        print(done.row(target), flush=True)
        for kind, count in done.faults.most_common():
            print(f"  {count:,} x {kind}\n      {done.examples.get(kind, '')}", flush=True)
        status |= bool(done.faults)
    return status


def run(order: Order, seeds: Sequence[Seed]) -> Summary:
    """All inputs of an order in a process of their own; when it dies, its input is a fault, and another goes on."""
    context, total, first = multiprocessing.get_context("fork"), Summary(), order.first
    while first < order.first + order.count:
        ours, theirs = context.Pipe(duplex=False)
        at = context.Value("q", first)
        process = context.Process(target=_work, args=(order, seeds, first, at, theirs))
        process.start()
        theirs.close()
        done, ended = Summary(), False
        with contextlib.suppress(EOFError):
            while True:
                done, ended = ours.recv()
        process.join()
        _add(total, done)
        if ended:
            break
        number, code = at.value, process.exitcode or 0
        kind = sanitizers.report_kind(process.pid or 0) or f"the process died: {_signal_name(code)}"
        total.inputs += number + 1 - first - done.inputs
        total.faults[kind] += 1
        total.examples.setdefault(kind, _save_fault(order, _input(seeds, number)[0], number, kind, [], ""))
        first = number + 1
    return total


def _signal_name(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)


def _add(total: Summary, other: Summary) -> None:
    for name in ("inputs", "calls", "compared", "cpu"):
        setattr(total, name, getattr(total, name) + getattr(other, name))
    total.statuses.update(other.statuses)
    total.faults.update(other.faults)
    total.examples = {**other.examples, **total.examples}


def _input(seeds: Sequence[Seed], number: int) -> tuple[Seed, random.Random]:
    """The input of this number, and the generator for what is chosen after it."""
    rng = random.Random(f"{seeds[0].target} {number}")
    return make_hostile_seed(rng, seeds), rng


def _work(order: Order, seeds: Sequence[Seed], first: int, at: Any, pipe: Any) -> None:
    prepare_process()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    began, out = time.monotonic(), Summary()
    with scratch_folder() as scratch:
        os.chdir(scratch)
        os.environ["TMPDIR"] = str(scratch)
        if not sanitizers.loaded():
            warm(_write_seed(min(seeds, key=lambda seed: len(seed.data))), seeds[0].format)
        for number in range(first, order.first + order.count):
            at.value = number
            used = int(time.process_time())
            resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            _check_input(order, seeds, number, out)
            if number % 64 == 0:
                out.cpu = time.process_time()
                pipe.send((out, False))
            if order.seconds and time.monotonic() - began > order.seconds:
                break
        os.chdir("/")
    out.cpu = time.process_time()
    pipe.send((out, True))
    pipe.close()


def _write_seed(seed: Seed) -> Path:
    path = Path("in", Path(seed.name).name)
    shutil.rmtree("in", ignore_errors=True)
    path.parent.mkdir()
    path.write_bytes(seed.data)
    return path


def _check_input(order: Order, seeds: Sequence[Seed], number: int, out: Summary) -> None:
    seed, rng = _input(seeds, number)
    path = _write_seed(seed)
    backends = BACKENDS if number % order.both == 0 else BACKENDS[:1]
    out.inputs += 1
    for call in calls_for(seed.format, rng, order.calls):
        out.calls += len(backends)
        out.compared += len(backends) > 1
        try:
            out.statuses.update(check_call(call, path, seed.format, backends))
        except Fault as fault:
            out.faults[fault.kind] += 1
            if out.faults[fault.kind] <= KEPT:
                where = _save_fault(order, seed, number, fault.kind, fault.words, fault.text)
                out.examples.setdefault(fault.kind, where)


def _save_fault(order: Order, seed: Seed, number: int, kind: str, words: list[str], text: str) -> str:
    """Keep an input with the command that shows its fault."""
    folder = order.save / f"{order.target}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Path(seed.name).name
    path.write_bytes(seed.data)
    command = " ".join(["binlogtool", *(f"'{word}'" if " " in word else word for word in words[:-1]), str(path)])
    again = f"python -m tests.fuzz.hostile {order.target} --seed {number} --count 1 --calls {order.calls} --both 1"
    with (folder / "failure.txt").open("a") as file:
        file.write(f"{kind}\nmade from {seed.name}\n{again}\n{command}\n{text}\n\n")
    return command if words else f"{again}; {path}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.hostile", description=__doc__)
    parser.add_argument("format", help=f"all, or some of {','.join(TARGETS)}")
    parser.add_argument("--count", type=int, default=1000, help="inputs of a format (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input (default 0)")
    parser.add_argument("--calls", type=int, default=3, help="commands for each input (default 3)")
    parser.add_argument("--both", type=int, default=2, help="every so many inputs go through both backends (default 2)")
    parser.add_argument("--seconds", type=float, default=0, help="end after this time by the clock, for each format")
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"), help="where faults are kept")
    parser.add_argument("--sanitize", action="store_true", help="with a native library that checks each access")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
