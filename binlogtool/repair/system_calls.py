"""System calls of a repair: read, hash and write files piece by piece; mounts, owners, deferred signals.

On a network file system, locks and the processes of other machines cannot be seen, and a write is not always durable
when the call returns: a repair there is refused unless it is explicitly allowed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import signal
import stat
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from binlogtool.core.open_file_holders import find_holders
from binlogtool.errors import LimitError, RefusedError
from binlogtool.format_api.format import ResultPiece
from binlogtool.limits import MIB

# --- The system calls of a repair, in one small object ---

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CHANGE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

_CLONE_RANGE = 0x4020940D
"""FICLONERANGE of linux/fs.h: source, offset in the source, size, offset in the target."""


class SystemCalls:
    """System calls that a repair uses; tests replace them. Each may raise `OSError`; none is retried."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a path without following links; return the descriptor."""
        return os.open(path, flags, mode)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Read at most `size` bytes."""
        return os.pread(fd, size, offset)

    def find_next_data(self, fd: int, offset: int) -> int:
        """Return the end of the hole at `offset`; `offset` if there is no hole, or if holes are not reported."""
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:  # ENXIO: only a hole up to the end
            return max(offset, os.fstat(fd).st_size) if error.errno == errno.ENXIO else offset

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write at an offset; return the number of bytes written."""
        return os.pwrite(fd, data, offset)

    def ftruncate(self, fd: int, size: int) -> None:
        """Set the size of a file."""
        os.ftruncate(fd, size)

    def clone_range(self, source: int, start: int, size: int, target: int, offset: int) -> bool:
        """Share the blocks of a range with another file (copy on write); return False if that is impossible."""
        try:
            fcntl.ioctl(target, _CLONE_RANGE, struct.pack("qQQQ", source, start, size, offset))
        except OSError:
            return False
        return True

    def fsync(self, fd: int) -> None:
        """Make the bytes and the size of a file durable."""
        os.fsync(fd)

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a file; an existing `new` is replaced."""
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; fail if that name exists."""
        os.link(old, new, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def lstat(self, path: str) -> os.stat_result:
        """Return the status of a path; links are not followed."""
        return os.lstat(path)

    def fstat(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    def list_directory(self, directory: str) -> list[str]:
        """List the names in a directory."""
        return os.listdir(directory)

    def get_free_space(self, directory: str) -> int:
        """Return the bytes that this user can still write in the file system of a directory."""
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def read_mount_table(self) -> str:
        """Return the text of the mount table; empty where the system has none."""
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError:
            return ""

    def get_user(self) -> int:
        """Return the effective user id."""
        return os.geteuid()

    def copy_owner_and_mode(self, fd: int, like: os.stat_result) -> None:
        """Give an open file the owner and the mode of another file."""
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, like.st_mode & 0o7777)

    def read_attributes(self, fd: int) -> dict[str, bytes]:
        """Return the extended attributes (access lists, security labels, ...) that this user can see."""
        attributes = {}
        with suppress(OSError):  # the file system may not support any
            for name in os.listxattr(fd):
                with suppress(OSError):  # some attributes are set by the system
                    attributes[name] = os.getxattr(fd, name)
        return attributes

    def set_attributes(self, fd: int, attributes: dict[str, bytes]) -> None:
        """Give a file these extended attributes and no others, as far as the system allows."""
        present = self.read_attributes(fd)
        for name in sorted(present.keys() - attributes.keys()):  # it may have inherited some from the directory
            with suppress(OSError):
                os.removexattr(fd, name)
        for name, value in attributes.items():
            if present.get(name) != value:
                with suppress(OSError):
                    os.setxattr(fd, name, value)

    def set_times(self, fd: int, atime_ns: int, mtime_ns: int) -> None:
        """Set the access and modification times."""
        os.utime(fd, ns=(atime_ns, mtime_ns))

    def flock(self, fd: int) -> bool:
        """Take the exclusive flock lock of an open file without waiting; return False if another process holds it."""
        return _try_lock(fcntl.flock, fd)

    def lock_record(self, fd: int) -> bool:
        """Take the POSIX write lock of the whole file without waiting; return False if another process holds it."""
        return _try_lock(fcntl.lockf, fd)

    def list_holders(self, status: os.stat_result) -> list[str]:
        """Return the other processes that have this file open or mapped, as far as this user can see them."""
        return sorted(set(find_holders(status)))


def _try_lock(lock: object, fd: int) -> bool:
    try:
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[operator]
    except (BlockingIOError, PermissionError):
        return False
    return True


SYSTEM = SystemCalls()


# --- File system types ---

ALLOW_OPTION = "--allow-network-file-system"

NETWORK_TYPES = frozenset((
    "9p", "acfs", "afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "davfs", "dfs", "fhgfs", "gfs2",
    "glusterfs", "gpfs", "lustre", "mvfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2",
    "shfs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs",
))  # fmt: skip
"""File system types whose files other machines can change (including shared disks and shared folders of a host)."""

LOCAL_FUSE_TYPES = frozenset((
    "bindfs", "cryfs", "encfs", "exfat", "ext2", "fuse-overlayfs", "fuse2fs", "gocryptfs", "lxcfs", "mergerfs",
    "ntfs", "ntfs-3g", "securefs", "squashfuse", "unionfs", "unionfs-fuse", "zfs",
))  # fmt: skip
"""FUSE subtypes (`fuse.NAME`) that are local; any other may reach over the network."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def find_filesystem_type(table: str, path: str) -> str | None:
    """Return the file system type of an absolute path without links; None if the table has no entry for it.

    Args:
        table: Text of /proc/self/mountinfo (proc(5)). If a mount point has several mounts, the last one counts.
    """
    best: tuple[int, str] | None = None
    for line in table.splitlines():
        left, mark, right = line.partition(" - ")
        fields, kinds = left.split(" "), right.split(" ")
        if not mark or len(fields) < 5 or not kinds[0]:
            continue
        mount_point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if _is_below(path, mount_point) and (best is None or len(mount_point) >= best[0]):
            best = (len(mount_point), kinds[0])
    return None if best is None else best[1]


def _is_below(path: str, mount_point: str) -> bool:
    return path == mount_point or path.startswith(mount_point if mount_point.endswith("/") else mount_point + "/")


def is_network_filesystem_type(kind: str) -> bool:
    """Return True if other machines can change the files of a file system of this type."""
    main, _, program = kind.partition(".")
    if main == "fuse":
        return program not in LOCAL_FUSE_TYPES
    return main in NETWORK_TYPES


def refuse_network(system: SystemCalls, directories: list[str], allowed: bool) -> None:
    """Refuse to change files or to keep an undo file on a network file system.

    Raises:
        RefusedError: a directory is on a network file system, and that is not allowed.
    """
    if allowed:
        return
    table = system.read_mount_table()
    for directory in dict.fromkeys(directories):
        kind = find_filesystem_type(table, os.path.realpath(directory))
        if kind is not None and is_network_filesystem_type(kind):
            text = f"is on a network file system ({kind}): use by other machines cannot be detected"
            raise RefusedError(f"{directory}: {text}; use {ALLOW_OPTION} to repair there anyway; nothing was changed")


# --- Access of the server to the files ---

MAX_NAMED_FILES = 3
"""Maximum number of files listed by name; the others are only counted."""


def describe_unusable_files(directory: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield a line about the files that the owner of the directory cannot read and write, if there are any.

    Only users and modes are checked: groups, ACLs and capabilities can allow more.
    """
    try:
        owner = os.stat(directory).st_uid
    except OSError:
        return
    unusable_paths = [path for path in paths if not _is_usable(path, owner)]
    if not unusable_paths:
        return
    names = ", ".join(os.path.basename(path) for path in unusable_paths[:MAX_NAMED_FILES])
    names += f" and {len(unusable_paths) - MAX_NAMED_FILES:,} more" if len(unusable_paths) > MAX_NAMED_FILES else ""
    yield f"not checked: a server that runs as the owner of the directory (uid {owner}) cannot read and write {names}"


def _is_usable(path: str, owner: int) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return True  # an unreadable file is reported elsewhere
    if owner == 0:
        return True
    bits = (stat.S_IRUSR, stat.S_IWUSR) if status.st_uid == owner else (stat.S_IROTH, stat.S_IWOTH)
    return all(status.st_mode & bit for bit in bits)


# --- Deferred signals ---

_DEFERRED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGPROF)


class DeferredSignals:
    """Context manager that defers signals: those that arrive inside take effect on exit. Only for the main thread."""

    def __init__(self) -> None:
        self._old_handlers: dict[int, Any] = {}
        self._received: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._old_handlers = {number: signal.signal(number, self._record_signal) for number in _DEFERRED_SIGNALS}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in dict.fromkeys(self._received):
            signal.raise_signal(number)

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)


# --- Read, hash and write files in chunks through the system object ---

ZERO_BLOCK = 1 << 16
"""Block size in bytes: undo files leave out blocks that are all zeros."""


def read_chunks(system: SystemCalls, fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes `[start, end)` of an open file in chunks; holes are not read.

    Raises:
        OSError: the file cannot be read, or is too short.
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


def iter_piece_bytes(system: SystemCalls, fd: int, pieces: Iterable[ResultPiece]) -> Iterator[bytes]:
    """Yield the bytes that the pieces describe, in chunks; kept ranges are read from an open file."""
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
    """Split a range of an open file into runs, in order.

    Yield each with True if it is all zeros (in blocks of ZERO_BLOCK).
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


def find_uncovered_ranges(covered: list[ResultPiece], file_size: int) -> list[ResultPiece]:
    """Return the ranges of a file that no piece covers."""
    gaps = []
    position = 0
    for piece in [*sorted(covered), ResultPiece(file_size, file_size)]:
        if piece.start > position:
            gaps.append(ResultPiece(position, piece.start))
        position = max(position, piece.end)
    return gaps


def hash_kept_other_and_whole(
    system: SystemCalls, fd: int, kept: list[ResultPiece], size: int, *, hash_whole: bool = True
) -> tuple[str, str, str]:
    """Return the SHA-256 of the kept ranges, of the other ranges and, on request, of the whole file, in one pass.

    Raises:
        LimitError: most of the file is a hole, whose zeros would take very long.
    """
    holes = size - 512 * system.fstat(fd).st_blocks
    if holes > _MAX_HOLE_BYTES:
        text = (
            f"{holes:,} of {size:,} bytes are holes in the file, and a plan hashes every byte; plan for a shorter copy"
        )
        raise LimitError(f"{text}: head -c SIZE FILE > COPY, where SIZE is the offset after the last record")
    digests = {True: hashlib.sha256(), False: hashlib.sha256()}
    whole = hashlib.sha256()
    parts = sorted([(p, True) for p in kept] + [(p, False) for p in find_uncovered_ranges(kept, size)])
    for part, is_kept in parts:
        for data in read_chunks(system, fd, part.start, part.end):
            digests[is_kept].update(data)
            if hash_whole:
                whole.update(data)
    return digests[True].hexdigest(), digests[False].hexdigest(), whole.hexdigest()


_MAX_HOLE_BYTES = 64 * 1024 * MIB
"""Maximum number of zero bytes in holes that are hashed: about a minute of work."""


def hash_chunks(data: Iterable[bytes]) -> str:
    """Return the SHA-256 of bytes that come in chunks."""
    digest = hashlib.sha256()
    for part in data:
        digest.update(part)
    return digest.hexdigest()


def write_all(system: SystemCalls, fd: int, data: bytes, offset: int) -> int:
    """Write all bytes; return the offset after them. Raises OSError: the disk is full, or another write error."""
    view = memoryview(data)
    while view:
        done = system.pwrite(fd, view, offset)
        if done <= 0:
            raise OSError(errno.EIO, "nothing was written")
        view = view[done:]
        offset += done
    return offset


def try_remove_file(system: SystemCalls, path: str) -> bool:
    """Remove a file that is no longer needed, durably; return False if it still exists."""
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
    """New file that gets its name only when it is complete and durable; if it is never published, the context manager
    removes it.

    Attributes:
        name: The temporary path; None once the file is published.
    """

    def __init__(self, system: SystemCalls, path: str, mode: int = 0o600) -> None:
        self._system = system
        self._path = path
        self.name: str | None = make_temporary_path(path)
        self.fd = system.open(self.name, CREATE, mode)
        system.flock(self.fd)  # marks it as in use, see `transaction._is_unused`
        self._end = 0

    def append_and_hash(self, chunks: Iterable[bytes]) -> str:
        """Append chunks; return the SHA-256 of the bytes that this call appended."""
        digest = hashlib.sha256()
        for part in chunks:
            self._end = write_all(self._system, self.fd, part, self._end)
            digest.update(part)
        return digest.hexdigest()

    def append_range_of_file(self, source: int, file_range: ResultPiece) -> Iterator[bytes]:
        """Append a range of an open file, sharing its blocks if the file system can; yield the bytes that were read.

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
            OSError: in particular FileExistsError, if the name is taken and may not be replaced.
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
            try_remove_file(self._system, self.name)
