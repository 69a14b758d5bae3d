"""Numbered commits of an output that grows by `--append`: OUT/_binlogtool/N.json is the commit of run N.

The output consists of the files that the highest commit lists, and no others. A part file is moved into place before
its commit appears; what a killed run left is not part of the output, and the next run removes it. A lock keeps a second
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

from binlogtool._version import __version__
from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.pipeline.manifest import ManifestCheck
from binlogtool.pipeline.stream_offset import ReadPosition

SCHEMA = "binlogtool/append/1"
COMMIT_FOLDER = "_binlogtool"
MAX_KEPT_COMMITS = 8
"""Number of commits that are kept; each lists the whole output, older ones are for reference only."""

_COMMIT_NAME = re.compile(r"([1-9]\d*)\.json")
_PART_NAME = re.compile(r"part-(\d{8,})\.(?:jsonl|parquet|orc|avro|(?:csv|json)(?:\.gz|\.bz2)?)")
_PENDING_PREFIX = "pending-"
_EMPTY_CHECK = b'"check": ""'


class CommittedInput(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
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
    def reached(self) -> ReadPosition:
        """The position reached, in the form that the reader needs."""
        return ReadPosition.from_dict({**self.place, "format": self.format, "done": self.done, "mark": self.mark,
                                  "born": self.generation})  # fmt: skip


class CommittedOutput(msgspec.Struct, frozen=True):
    """One file of the output. commit: number of the commit that added it."""

    path: str
    rows: int
    size: int
    sha256: str
    commit: int


class ParentCommit(msgspec.Struct, frozen=True):
    """Reference to the previous commit. sha256: hash of its file."""

    number: int
    sha256: str


class AppendCommit(msgspec.Struct, frozen=True):
    """State of the output after one run.

    rows: rows of the whole output; new: rows of this run. check: SHA-256 of the commit file without these digits;
    "" = unknown.
    """

    number: int = 0
    parent: ParentCommit | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    inputs: tuple[CommittedInput, ...] = ()
    outputs: tuple[CommittedOutput, ...] = ()
    rows: int = 0
    new: int = 0
    findings: tuple[Mapping[str, Any], ...] = ()
    schema: str = SCHEMA
    tool: str = __version__
    check: str = ""

    def to_bytes(self) -> bytes:
        """Return the content of the commit file."""
        plain = msgspec.json.format(msgspec.json.encode(replace(self, check="")), indent=1) + b"\n"
        return plain.replace(_EMPTY_CHECK, b'"check": "%b"' % hashlib.sha256(plain).hexdigest().encode())

    def is_intact(self, data: bytes) -> bool:
        """Return True if the bytes of the commit file match its checksum."""
        return not self.check or hashlib.sha256(data.replace(self.check.encode(), b"")).hexdigest() == self.check


class CommitStore(msgspec.Struct, frozen=True):
    """The commit directory of an output, locked for this process."""

    output: Path

    @property
    def folder(self) -> Path:
        """Directory of the commits."""
        return self.output / COMMIT_FOLDER

    def part_path(self, number: int, suffix: str) -> Path:
        """Return the path of the file that a commit adds. suffix: suffix of its name, with the dot."""
        return self.output / f"part-{number:08d}{suffix}"

    def pending_path(self, path: Path) -> Path:
        """Return where a file is written before it is moved into place; readers that look for *.json do not see it."""
        return self.folder / f"{_PENDING_PREFIX}{path.name.removesuffix('.json')}"

    def read_last(self) -> AppendCommit:
        """Read the highest commit; return an empty commit with number 0 if there is none yet.

        Raises:
            InputOutputError: it is damaged, or does not match the files that it lists.
        """
        numbers = self._list_numbers()
        return self._read_commit(max(numbers)) if numbers else AppendCommit()

    def _list_numbers(self) -> list[int]:
        return [int(match[1]) for name in os.listdir(self.folder) if (match := _COMMIT_NAME.fullmatch(name))]

    def _commit_path(self, number: int) -> Path:
        return self.folder / f"{number}.json"

    def _read_commit(self, number: int) -> AppendCommit:
        path = self._commit_path(number)
        try:
            commit = msgspec.json.decode(data := path.read_bytes(), type=AppendCommit)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputOutputError(
                f"{path}: is broken: {error}; put it back from a copy, or begin a new output"
            ) from error
        if commit.schema != SCHEMA or commit.number != number:
            raise InputOutputError(f"{path}: is no commit number {number} of the shape {SCHEMA}")
        if not commit.is_intact(data):
            raise InputOutputError(f"{path}: was changed: put it back from a copy, or begin a new output")
        if commit.rows != sum(one.rows for one in commit.outputs):
            raise InputOutputError(f"{path}: is broken: its files do not have the {commit.rows:,} rows that it counts")
        for output in commit.outputs:
            if not _has_size(self.output / output.path, output.size):
                message = f"{self.output / output.path}: is not there with {output.size:,} bytes, as {path} says"
                raise InputOutputError(f"{message}: put it back from a copy, or begin a new output")
        return commit

    def remove_uncommitted(self, last: AppendCommit) -> list[str]:
        """Remove what the run after the last commit left, and return what was removed as messages.

        Raises:
            RefusedError: there are files of later runs, so commits are missing; those files may be the only copy of
                their
                logs.
        """
        pending = [path for path in self.folder.iterdir() if _is_pending_name(path.name)]
        numbers = {path: int(match[1]) for path in self.output.iterdir() if (match := _PART_NAME.fullmatch(path.name))}
        parts = [path for path, number in numbers.items() if number == last.number + 1]
        later = sorted(path for path, number in numbers.items() if number > last.number + 1)
        if later:
            text = f"{later[0]}: is of a later run than the highest commit, {last.number}, so commits were removed"
            raise RefusedError(f"{text}: put them back from a copy, or begin a new output")
        for path in (*pending, *parts):
            path.unlink()
        return [f"{path}: removed: left by a run that broke off" for path in sorted((*pending, *parts))]

    def commit(self, last: AppendCommit, new: AppendCommit) -> None:
        """Make `new` the state of the output, and delete old commits."""
        path = self._commit_path(new.number)
        if last.number:
            parent_sha256 = hashlib.sha256(self._commit_path(last.number).read_bytes()).hexdigest()
            new = replace(new, parent=ParentCommit(last.number, parent_sha256))
        pending = self.pending_path(path)
        pending.write_bytes(new.to_bytes())
        self.publish_file(pending, path)
        for number in self._list_numbers():
            if number <= new.number - MAX_KEPT_COMMITS:
                self._commit_path(number).unlink(missing_ok=True)

    def publish_file(self, pending: Path, target: Path) -> None:
        """Sync a finished file, and move it into place."""
        _sync_path(pending)
        pending.rename(target)
        _sync_path(target.parent)


def _is_pending_name(name: str) -> bool:
    """Return True for names of unfinished files."""
    return name.startswith(_PENDING_PREFIX)


@contextlib.contextmanager
def open_commit_store(output: Path) -> Iterator[CommitStore]:
    """Open the commit directory of an output, creating it if necessary, and lock it for this process.

    Raises:
        RefusedError: the output is something else, or another process writes it.
        InputOutputError: it cannot be written.
    """
    store = CommitStore(output)
    try:
        _ensure_store(store)
        handle = os.open(store.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            _lock_store(handle, output)
            yield store
        finally:
            os.close(handle)
    except OSError as error:
        raise InputOutputError(f"{output}: cannot be written: {error.strerror or error}") from error


def _lock_store(handle: int, output: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RefusedError(f"{output}: another process appends to it") from error


def _ensure_store(store: CommitStore) -> None:
    output = store.output
    if not os.path.lexists(output):
        output.mkdir()
        _sync_path(output.parent)
    if output.is_symlink() or not output.is_dir():
        raise RefusedError(f"{output} exists and is no directory of --append; name another output")
    if not store.folder.is_dir():
        if any(output.iterdir()):
            raise RefusedError(f"{output} exists and was not made with --append; name another output")
        store.folder.mkdir()
        _sync_path(output)


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def build_append_checks(
    proof: str, previous: AppendCommit, commit: AppendCommit, key_count: int
) -> tuple[ManifestCheck, ...]:
    """Return the checks that a run passed. key_count: number of row keys that were checked to be unique."""
    return (
        ManifestCheck("rows-in-equal-rows-out", proof),
        ManifestCheck("rows-before-and-new", f"{previous.rows:,} + {commit.new:,} = {commit.rows:,}"),
        ManifestCheck("keys-are-unique", f"{key_count:,} of (generation, file, record, row), behind all those before"),
    )
