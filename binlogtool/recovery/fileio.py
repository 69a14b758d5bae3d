"""Read, hash and write files in chunks through the system object."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress

from binlogtool.errors import LimitError
from binlogtool.limits import MIB
from binlogtool.recovery.plan import ResultPiece
from binlogtool.recovery.system import CREATE, SystemCalls

ZERO_BLOCK = 1 << 16
"""Zeros are left out of an undo file where there are so many."""


def read_chunks(system: SystemCalls, fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes `[start, end)` of an open file in chunks; holes are not read.

    Raises:
        OSError: it cannot be read, or is shorter.
    """
    while start < end:
        hole = min(system.find_next_data(fd, start), end) - start
        if hole > 0:
            yield from zero_chunks(hole)
            start += hole
            continue
        data = system.pread(fd, min(MIB, end - start), start)
        if not data:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        yield data
        start += len(data)


def read_pieces(system: SystemCalls, fd: int, pieces: Iterable[ResultPiece]) -> Iterator[bytes]:
    """Yield the bytes that the pieces describe, in chunks; kept ranges come from an open file."""
    for piece in pieces:
        if piece.is_original:
            yield from read_chunks(system, fd, piece.start, piece.end)
        elif piece.data is not None:
            yield piece.data
        else:
            yield from zero_chunks(piece.zeros)


def zero_chunks(size: int) -> Iterator[bytes]:
    """Yield `size` zero bytes in chunks."""
    while size > 0:
        yield bytes(min(size, MIB))
        size -= MIB


def split_zero_runs(system: SystemCalls, fd: int, file_range: ResultPiece) -> Iterator[tuple[ResultPiece, bool]]:
    """Split a range of an open file into runs, in order; yield each with True if it is all zeros (in blocks of
    ZERO_BLOCK).
    """
    start, is_zero, position = file_range.start, False, file_range.start
    while position < file_range.end:
        data = b"".join(read_chunks(system, fd, position, min(position + ZERO_BLOCK, file_range.end)))
        block_is_zero = not any(data)
        if block_is_zero != is_zero and position > start:
            yield ResultPiece(start, position), is_zero
            start = position
        is_zero, position = block_is_zero, position + len(data)
    if position > start:
        yield ResultPiece(start, position), is_zero


def find_gaps(kept: list[ResultPiece], size: int) -> list[ResultPiece]:
    """Return the ranges of a file that no piece covers."""
    gaps = []
    position = 0
    for piece in [*sorted(kept), ResultPiece(size, size)]:
        if piece.start > position:
            gaps.append(ResultPiece(position, piece.start))
        position = max(position, piece.end)
    return gaps


def hash_parts(
    system: SystemCalls, fd: int, kept: list[ResultPiece], size: int, *, hash_whole: bool = True
) -> tuple[str, str, str]:
    """Return the SHA-256 of the kept ranges, of the other ranges and, if wanted, of the whole file, in one pass.

    Raises:
        LimitError: most of the file is a hole, whose zeros would take very long.
    """
    _refuse_huge_holes(system, fd, size)
    digests = {True: hashlib.sha256(), False: hashlib.sha256()}
    whole = hashlib.sha256()
    parts = sorted([(p, True) for p in kept] + [(p, False) for p in find_gaps(kept, size)])
    for part, is_kept in parts:
        for data in read_chunks(system, fd, part.start, part.end):
            digests[is_kept].update(data)
            if hash_whole:
                whole.update(data)
    return digests[True].hexdigest(), digests[False].hexdigest(), whole.hexdigest()


_MAX_HOLE_BYTES = 64 * 1024 * MIB
"""Bytes of zeros that are hashed without being on the disk: about a minute of work."""


def _refuse_huge_holes(system: SystemCalls, fd: int, size: int) -> None:
    holes = size - 512 * system.fstat(fd).st_blocks
    if holes > _MAX_HOLE_BYTES:
        text = (
            f"{holes:,} of {size:,} bytes are a hole in the file, and a plan hashes every byte; plan for a shorter copy"
        )
        raise LimitError(f"{text}: head -c SIZE FILE > COPY, where SIZE is behind the last record")


def hash_chunks(data: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in chunks."""
    digest = hashlib.sha256()
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def write_all(system: SystemCalls, fd: int, data: bytes, offset: int) -> int:
    """Write all bytes; return the offset after them.

    Raises:
        OSError: the disk is full, or the like.
    """
    view = memoryview(data)
    while view:
        done = system.pwrite(fd, view, offset)
        if done <= 0:
            raise OSError(errno.EIO, "nothing was written")
        view = view[done:]
        offset += done
    return offset


def remove_file(system: SystemCalls, path: str) -> bool:
    """Remove a file that is no longer needed, durably; return False if it is still there."""
    try:
        system.unlink(path)
        system.fsync_directory(get_directory(path))
    except FileNotFoundError:
        return True
    except (OSError, MemoryError):
        return False
    return True


def path_exists(system: SystemCalls, path: str) -> bool:
    """Return True if the path exists; links are not followed."""
    try:
        system.lstat(path)
    except FileNotFoundError:
        return False
    return True


def get_directory(path: str) -> str:
    """Return the directory that a file is in."""
    return os.path.dirname(path) or "."


def make_temporary_path(path: str) -> str:
    """Make a random path for an unfinished file, in the same directory."""
    name = os.path.basename(path)[:150]
    return os.path.join(get_directory(path), f".{name}.binlogtool-tmp-{secrets.token_hex(6)}")


class TemporaryFile:
    """A new file that is named only when it is complete and durable; left without a name, the context manager removes
    it.

    Attributes:
        name: The temporary path; None once it is published.
    """

    def __init__(self, system: SystemCalls, path: str, mode: int = 0o600) -> None:
        self._system = system
        self._path = path
        self.name: str | None = make_temporary_path(path)
        self.fd = system.open(self.name, CREATE, mode)
        system.flock(self.fd)  # says that it is in use, see `leftovers`
        self._end = 0

    def append(self, data: Iterable[bytes]) -> str:
        """Append chunks; return the SHA-256 of what was appended by this call."""
        digest = hashlib.sha256()
        for part in data:
            self._end = write_all(self._system, self.fd, part, self._end)
            digest.update(part)
        return digest.hexdigest()

    def append_from(self, source: int, file_range: ResultPiece) -> Iterator[bytes]:
        """Append a range of an open file, sharing its blocks where the file system can; yield the bytes that were
        read.

        Raises:
            OSError.
        """
        shared = self._system.clone_range(source, file_range.start, file_range.size, self.fd, self._end)
        for data in read_chunks(self._system, source, file_range.start, file_range.end):
            self._end = self._end + len(data) if shared else write_all(self._system, self.fd, data, self._end)
            yield data

    def publish(self, *, replace: bool) -> None:
        """Make the bytes durable, give the file its name, and make the name durable.

        Raises:
            OSError: FileExistsError, if the name is taken and may not be replaced.
        """
        assert self.name is not None
        self._system.fsync(self.fd)
        if replace:
            self._system.rename(self.name, self._path)
        else:
            self._system.link(self.name, self._path)
            self._system.unlink(self.name)
        self.name = None
        self._system.fsync_directory(get_directory(self._path))

    def __enter__(self) -> TemporaryFile:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._system.close(self.fd)
        if self.name is not None:
            remove_file(self._system, self.name)
