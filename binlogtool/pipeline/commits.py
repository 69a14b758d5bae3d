"""Numbered commits of an output that grows by `--append`: OUT/_binlogtool/N.json is the commit of run N.

The output consists of the files that the highest commit lists, and no others. A part file is moved into place before
its commit appears; what a killed run left is not part of the output, and the next run removes it. A lock keeps a
second
writer out.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import binlogtool
from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.pipeline.manifest import Check
from binlogtool.pipeline.stream_offset import Reached

SCHEMA = "binlogtool/append/1"
FOLDER = "_binlogtool"
KEPT = 8
"""Number of commits that are kept; each lists the whole output, older ones are for reference only."""

_COMMIT = re.compile(r"([1-9]\d*)\.json")
_PART = re.compile(r"part-(\d{8,})\.(?:jsonl|parquet|orc|avro|(?:csv|json)(?:\.gz|\.bz2)?)")
_PENDING = "pending-"
_NO_CHECK = b'"check": ""'


class Taken(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """How far one input file was converted.

    Args:
        generation: number of earlier files that had this name.
        mark: identifies the file among those of the same name.
        begin, end: byte range that the last run with new records read.
        sha256: hash of the bytes [0, end).
        done: nothing more will be read from it.
        gone: the server removed it, which was reported if records were lost.
        place: where to continue.
        last: record number and index within the record (-1 = the record itself) of its last row.
        steady: as sha256, without bytes that a server rewrites later; "" = unknown.
    """

    name: str
    format: str
    generation: int
    mark: str
    begin: int
    end: int
    sha256: str
    done: bool
    gone: bool
    place: dict[str, Any]
    last: tuple[int, int] | None = None
    steady: str = ""

    @property
    def reached(self) -> Reached:
        """The position reached, in the form that the reader needs."""
        return Reached.from_dict({**self.place, "format": self.format, "done": self.done, "mark": self.mark,
                                  "born": self.generation})  # fmt: skip


class Added(msgspec.Struct, frozen=True):
    """One file of the output. commit: number of the commit that added it."""

    path: str
    rows: int
    size: int
    sha256: str
    commit: int


class Parent(msgspec.Struct, frozen=True):
    """Reference to the previous commit. sha256: hash of its file."""

    number: int
    sha256: str


class Commit(msgspec.Struct, frozen=True):
    """State of the output after one run.

    rows: rows of the whole output; new: rows of this run. check: SHA-256 of the commit file without these digits;
    "" = unknown.
    """

    number: int = 0
    parent: Parent | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    inputs: tuple[Taken, ...] = ()
    outputs: tuple[Added, ...] = ()
    rows: int = 0
    new: int = 0
    findings: tuple[Mapping[str, Any], ...] = ()
    schema: str = SCHEMA
    tool: str = binlogtool.__version__
    check: str = ""

    def written(self) -> bytes:
        """Return the content of the commit file."""
        plain = msgspec.json.format(msgspec.json.encode(replace(self, check="")), indent=1) + b"\n"
        return plain.replace(_NO_CHECK, b'"check": "%b"' % hashlib.sha256(plain).hexdigest().encode())

    def is_whole(self, data: bytes) -> bool:
        """Return True if the bytes of the commit file match its checksum."""
        return not self.check or hashlib.sha256(data.replace(self.check.encode(), b"")).hexdigest() == self.check


class Store(msgspec.Struct, frozen=True):
    """The commit directory of an output, locked for this process."""

    output: Path

    @property
    def folder(self) -> Path:
        """Directory of the commits."""
        return self.output / FOLDER

    def part(self, number: int, ending: str) -> Path:
        """Return the path of the file that a commit adds. ending: suffix of its name, with the dot."""
        return self.output / f"part-{number:08d}{ending}"

    def pending(self, path: Path) -> Path:
        """Return where a file is written before it is moved into place; readers that look for *.json do not see it."""
        return self.folder / f"{_PENDING}{path.name.removesuffix('.json')}"

    def last(self) -> Commit:
        """Read the highest commit; return an empty commit with number 0 if there is none yet.

        Raises:
            InputOutputError: it is damaged, or does not match the files that it lists.
        """
        numbers = self._numbers()
        return self._checked(max(numbers)) if numbers else Commit()

    def _numbers(self) -> list[int]:
        return [int(found[1]) for name in os.listdir(self.folder) if (found := _COMMIT.fullmatch(name))]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.json"

    def _checked(self, number: int) -> Commit:
        path = self._path(number)
        try:
            found = msgspec.json.decode(data := path.read_bytes(), type=Commit)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputOutputError(
                f"{path}: is broken: {error}; put it back from a copy, or begin a new output"
            ) from error
        if found.schema != SCHEMA or found.number != number:
            raise InputOutputError(f"{path}: is no commit number {number} of the shape {SCHEMA}")
        if not found.is_whole(data):
            raise InputOutputError(f"{path}: was changed: put it back from a copy, or begin a new output")
        if found.rows != sum(one.rows for one in found.outputs):
            raise InputOutputError(f"{path}: is broken: its files do not have the {found.rows:,} rows that it counts")
        for one in found.outputs:
            if not _has_size(self.output / one.path, one.size):
                told = f"{self.output / one.path}: is not there with {one.size:,} bytes, as {path} says"
                raise InputOutputError(f"{told}: put it back from a copy, or begin a new output")
        return found

    def clear(self, last: Commit) -> list[str]:
        """Remove what the run after the last commit left, and return what was removed as messages.

        Raises:
            RefusedError: there are files of later runs, so commits are missing; those files may be the only copy of
                their
                logs.
        """
        pending = [path for path in self.folder.iterdir() if _is_pending(path.name)]
        numbers = {path: int(found[1]) for path in self.output.iterdir() if (found := _PART.fullmatch(path.name))}
        parts = [path for path, number in numbers.items() if number == last.number + 1]
        later = sorted(path for path, number in numbers.items() if number > last.number + 1)
        if later:
            text = f"{later[0]}: is of a later run than the highest commit, {last.number}, so commits were removed"
            raise RefusedError(f"{text}: put them back from a copy, or begin a new output")
        for path in (*pending, *parts):
            path.unlink()
        return [f"{path}: removed: left by a run that broke off" for path in sorted((*pending, *parts))]

    def commit(self, last: Commit, new: Commit) -> None:
        """Make `new` the state of the output, and delete old commits."""
        path = self._path(new.number)
        if last.number:
            before = hashlib.sha256(self._path(last.number).read_bytes()).hexdigest()
            new = replace(new, parent=Parent(last.number, before))
        pending = self.pending(path)
        pending.write_bytes(new.written())
        self.move(pending, path)
        for number in self._numbers():
            if number <= new.number - KEPT:
                self._path(number).unlink(missing_ok=True)

    def move(self, pending: Path, place: Path) -> None:
        """Sync a finished file, and move it into place."""
        _sync(pending)
        pending.rename(place)
        _sync(place.parent)


def _is_pending(name: str) -> bool:
    """Return True for names of unfinished files."""
    return name.startswith(_PENDING)


@contextlib.contextmanager
def opened(output: Path) -> Iterator[Store]:
    """Open the commit directory of an output, creating it if necessary, and lock it for this process.

    Raises:
        RefusedError: the output is something else, or another process writes it.
        InputOutputError: it cannot be written.
    """
    store = Store(output)
    try:
        _made(store)
        handle = os.open(store.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, output)
            yield store
        finally:
            os.close(handle)
    except OSError as error:
        raise InputOutputError(f"{output}: cannot be written: {error.strerror or error}") from error


def _lock(handle: int, output: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RefusedError(f"{output}: another process appends to it") from error


def _made(store: Store) -> None:
    output = store.output
    if not os.path.lexists(output):
        output.mkdir()
        _sync(output.parent)
    if output.is_symlink() or not output.is_dir():
        raise RefusedError(f"{output} exists and is no directory of --append; name another output")
    if not store.folder.is_dir():
        if any(output.iterdir()):
            raise RefusedError(f"{output} exists and was not made with --append; name another output")
        store.folder.mkdir()
        _sync(output)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checks_of(proof: str, last: Commit, new: Commit, keys: int) -> tuple[Check, ...]:
    """Return the checks that a run passed. keys: number of row keys that were checked to be unique."""
    return (
        Check("rows-in-equal-rows-out", proof),
        Check("rows-before-and-new", f"{last.rows:,} + {new.new:,} = {new.rows:,}"),
        Check("keys-are-unique", f"{keys:,} of (generation, file, record, row), behind all those before"),
    )
