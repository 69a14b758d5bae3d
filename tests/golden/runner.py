"""Run command lines in forked processes and reduce what they print to hashes."""

from __future__ import annotations

import gc
import hashlib
import io
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import msgspec

from tests.golden.calls import Call

SECONDS_PER_CALL = 60
HASH_DIGITS = 16

WARM_SAMPLES = (
    "shipped/guides/tarantool-flipped/00000000000000000003.xlog",
    "shipped/guides/tarantool-flipped/00000000000000000003.snap",
    "shipped/guides/mariadb/mariadb-bin.000001",
    "shipped/manticore/v16-mixed/binlog.0001",
    "shipped/drizzle/basic-checksum.log",
    "shipped/eblob/api-sync.binlog",
)
"""One small log of each format."""

NORMALISED = (
    (re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z(?=\", ?\"(host|tool|by))"), b"<now>"),
    (
        re.compile(rb'"(created|started|finished|modified|mtime|mtime_ns|ctime_ns|inode|device)": ?("[^"]*"|\d+)'),
        rb'"\1":0',
    ),
    (re.compile(rb'"(seconds|elapsed|duration_s|cpu_seconds)": ?[\d.e-]+'), rb'"\1":0'),
    (re.compile(rb"binlogtool-\w+\.crash\.txt"), b"binlogtool-0.crash.txt"),
    (re.compile(rb'(timestamp|time)="[^"]*"'), rb'\1=""'),
    (re.compile(rb'"free_bytes": ?\d+'), b'"free_bytes":0'),
    (re.compile(rb"[\d.,]+ [KMGTP]?i?B free"), b"<size> free"),
)
"""Members that differ from run to run: times of the run, and what a file system says of a copy of a sample."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Exit status (negative: the signal), hashes of standard output, of standard error, and of the files written."""

    status: int
    out: str
    err: str
    files: str


class Output(msgspec.Struct, frozen=True):
    """The normalised texts behind an outcome."""

    status: int
    out: bytes
    err: bytes
    files: dict[str, bytes]

    def outcome(self) -> Outcome:
        """Reduce the texts to hashes."""
        joined = b"".join(name.encode() + b"\0" + data + b"\0" for name, data in sorted(self.files.items()))
        return Outcome(self.status, _hash(self.out), _hash(self.err), _hash(joined))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS] if data else ""


class Scratch:
    """A folder that calls run in: links to the corpora, and `out` for what they write."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="golden-"))
        self.real = {str(folder.resolve()).encode(): name.encode() for name, folder in folders.items()}
        for name, folder in folders.items():
            (self.path / name).symlink_to(folder.resolve())

    def run(self, call: Call) -> Output:
        """Run one call in a fork of this process."""
        out = self.path / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        pid = os.fork()
        if pid == 0:
            self._child(call)
        _, waited = os.waitpid(pid, 0)
        status = os.waitstatus_to_exitcode(waited)
        files = {str(path.relative_to(out)): path for path in sorted(out.rglob("*")) if path.is_file()}
        texts = {name: self._normalise(path.read_bytes()) for name, path in files.items()}
        return Output(
            status,
            self._normalise((self.path / "stdout").read_bytes()),
            self._normalise((self.path / "stderr").read_bytes()),
            texts,
        )

    def _child(self, call: Call) -> None:
        status = 255
        try:
            os.chdir(self.path)
            for number, name in ((1, "stdout"), (2, "stderr")):
                opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(opened, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace")
            signal.alarm(SECONDS_PER_CALL)
            from binlogtool.cli import main

            status = main(list(call.words))
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _normalise(self, data: bytes) -> bytes:
        data = data.replace(str(self.path).encode(), b"<scratch>")
        for real, name in self.real.items():
            data = data.replace(real, name)
        for pattern, text in NORMALISED:
            data = pattern.sub(text, data)
        return data

    def remove(self) -> None:
        """Delete the folder; the corpora are links."""
        shutil.rmtree(self.path, ignore_errors=True)


def prepare_process() -> None:
    """Set the environment of all calls, and import what most of them need before they are forked."""
    os.environ.update({"XDG_CONFIG_HOME": "/nonexistent", "COLUMNS": "100", "LC_ALL": "C.UTF-8", "TZ": "UTC"})
    for name in ("NO_COLOR", "FORCE_COLOR", "LINES", "PAGER", "MANPAGER"):
        os.environ.pop(name, None)
    from binlogtool import formats

    formats.iter_built_in()


def run_all(calls: Iterable[Call], folders: dict[str, Path], jobs: int) -> Iterator[tuple[str, Outcome]]:
    """Run the calls in `jobs` processes; yield each call's key and outcome in any order."""
    prepare_process()
    first = Scratch(folders)
    try:
        _warm(first)
    finally:
        first.remove()
    with get_context("fork").Pool(jobs, _open_scratch, (folders,)) as pool:
        yield from pool.imap_unordered(_run_one, calls, chunksize=32)
        pool.close()
        pool.join()  # each worker removes its folder


_scratch: list[Scratch] = []
"""The folder of this worker process."""


def _open_scratch(folders: dict[str, Path]) -> None:
    _scratch[:] = [Scratch(folders)]
    Finalize(None, _scratch[0].remove, exitpriority=0)


def _warm(scratch: Scratch) -> None:
    """Run each kind of call once in this process, over a sample of each format: the forks find all modules loaded."""
    from tests.golden.calls import FILE_CALLS, FOLDER_CALLS

    here = os.getcwd()
    os.chdir(scratch.path)
    try:
        (scratch.path / "out").mkdir(exist_ok=True)
        for sample in WARM_SAMPLES:
            for text in FILE_CALLS:
                shutil.rmtree("out")
                os.mkdir("out")
                run_here([*text.split(), sample])
        for text in FOLDER_CALLS:
            shutil.rmtree("out")
            os.mkdir("out")
            run_here([*text.split(), os.path.dirname(WARM_SAMPLES[0])])
    finally:
        os.chdir(here)
    gc.collect()
    gc.freeze()


def run_here(words: list[str]) -> bytes:
    """Run a command line in this process; return its standard output."""
    from binlogtool.cli import main

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)}
    out, streams = io.BytesIO(), (sys.stdout, sys.stderr)
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8")
    sys.stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        main(words)
        sys.stdout.flush()
        return out.getvalue()
    finally:
        sys.stdout, sys.stderr = streams
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _run_one(call: Call) -> tuple[str, Any]:
    return call.key, _scratch[0].run(call).outcome()
