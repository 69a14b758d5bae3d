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
from binlogtool.recovery.plan import Piece
from binlogtool.recovery.system import CREATE, System

BLANK = 1 << 16
"""Zeros are left out of an undo file where there are so many."""


def chunks(system: System, fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes `[start, end)` of an open file in chunks; holes are not read.

    Raises:
        OSError: it cannot be read, or is shorter.
    """
    while start < end:
        hole = min(system.next_data(fd, start), end) - start
        if hole > 0:
            yield from zeros(hole)
            start += hole
            continue
        data = system.pread(fd, min(MIB, end - start), start)
        if not data:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        yield data
        start += len(data)


def piece_chunks(system: System, fd: int, pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Yield the bytes that the pieces describe, in chunks; kept ranges come from an open file."""
    for piece in pieces:
        if piece.kept:
            yield from chunks(system, fd, piece.start, piece.end)
        elif piece.data is not None:
            yield piece.data
        else:
            yield from zeros(piece.zeros)


def zeros(size: int) -> Iterator[bytes]:
    """Yield `size` zero bytes in chunks."""
    while size > 0:
        yield bytes(min(size, MIB))
        size -= MIB


def runs(system: System, fd: int, part: Piece) -> Iterator[tuple[Piece, bool]]:
    """Split a range of an open file into runs, in order; yield each with True if it is all zeros (in blocks of
    ZERO_BLOCK).
    """
    start, blank, at = part.start, False, part.start
    while at < part.end:
        data = b"".join(chunks(system, fd, at, min(at + BLANK, part.end)))
        zero = not any(data)
        if zero != blank and at > start:
            yield Piece(start, at), blank
            start = at
        blank, at = zero, at + len(data)
    if at > start:
        yield Piece(start, at), blank


def gaps(kept: list[Piece], size: int) -> list[Piece]:
    """Return the ranges of a file that no piece covers."""
    out = []
    place = 0
    for piece in [*sorted(kept), Piece(size, size)]:
        if piece.start > place:
            out.append(Piece(place, piece.start))
        place = max(place, piece.end)
    return out


def three_hashes(system: System, fd: int, kept: list[Piece], size: int, *, entire: bool = True) -> tuple[str, str, str]:
    """Return the SHA-256 of the kept ranges, of the other ranges and, if wanted, of the whole file, in one pass.

    Raises:
        LimitError: most of the file is a hole, whose zeros would take very long.
    """
    _refuse_huge_holes(system, fd, size)
    digests = {True: hashlib.sha256(), False: hashlib.sha256()}
    whole = hashlib.sha256()
    parts = sorted([(p, True) for p in kept] + [(p, False) for p in gaps(kept, size)])
    for part, stays in parts:
        for data in chunks(system, fd, part.start, part.end):
            digests[stays].update(data)
            if entire:
                whole.update(data)
    return digests[True].hexdigest(), digests[False].hexdigest(), whole.hexdigest()


_MOST_HOLES = 64 * 1024 * MIB
"""Bytes of zeros that are hashed without being on the disk: about a minute of work."""


def _refuse_huge_holes(system: System, fd: int, size: int) -> None:
    holes = size - 512 * system.fstat(fd).st_blocks
    if holes > _MOST_HOLES:
        text = (
            f"{holes:,} of {size:,} bytes are a hole in the file, and a plan hashes every byte; plan for a shorter copy"
        )
        raise LimitError(f"{text}: head -c SIZE FILE > COPY, where SIZE is behind the last record")


def sha256(data: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in chunks."""
    digest = hashlib.sha256()
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def write_all(system: System, fd: int, data: bytes, offset: int) -> int:
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


def remove(system: System, path: str) -> bool:
    """Remove a file that is no longer needed, durably; return False if it is still there."""
    try:
        system.unlink(path)
        system.fsync_directory(directory_of(path))
    except FileNotFoundError:
        return True
    except (OSError, MemoryError):
        return False
    return True


def exists(system: System, path: str) -> bool:
    """Return True if the path exists; links are not followed."""
    try:
        system.lstat(path)
    except FileNotFoundError:
        return False
    return True


def directory_of(path: str) -> str:
    """Return the directory that a file is in."""
    return os.path.dirname(path) or "."


def temporary_beside(path: str) -> str:
    """Make a random path for an unfinished file, in the same directory."""
    name = os.path.basename(path)[:150]
    return os.path.join(directory_of(path), f".{name}.binlogtool-tmp-{secrets.token_hex(6)}")


class Temporary:
    """A new file that is named only when it is complete and durable; left without a name, the context manager removes
    it.

    Attributes:
        name: The temporary path; None once it is published.
    """

    def __init__(self, system: System, path: str, mode: int = 0o600) -> None:
        self._system = system
        self._path = path
        self.name: str | None = temporary_beside(path)
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

    def take(self, source: int, part: Piece) -> Iterator[bytes]:
        """Append a range of an open file, sharing its blocks where the file system can; yield the bytes that were
        read.

        Raises:
            OSError.
        """
        shared = self._system.clone(source, part.start, part.size, self.fd, self._end)
        for data in chunks(self._system, source, part.start, part.end):
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
        self._system.fsync_directory(directory_of(self._path))

    def __enter__(self) -> Temporary:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._system.close(self.fd)
        if self.name is not None:
            remove(self._system, self.name)
