"""Discovery of log sets: the files that form one log, and their order.

Symbolic links are not followed; depth and number of entries are bounded.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from binlogtool import formats
from binlogtool.errors import BinlogtoolError, InputOutputError, UnknownFormatError
from binlogtool.formats.base import Format
from binlogtool.log.left import FILE, LINK, PACKED, PACKED_ENDS, READ_PACKED, UNREADABLE, Left, is_packed_log
from binlogtool.log.proof import Look, look
from binlogtool.log.source import is_url

MAX_DEPTH = 3
MAX_ENTRIES = 200_000
OWN_FILES = ".binlogtool-"
"""What repairs leave beside a log (undo files) has this in its name, and is no member of it."""
_AT_ONCE = 16
"""Files of another system that are looked into at a time."""


class Members(NamedTuple):
    """One log: its directory, and the names of its files relative to it, in the log's own order.

    strays: files with names of this log whose content does not belong to it; they are skipped.
    """

    format: Format
    home: str
    names: list[str]
    strays: list[str]


class Directory(NamedTuple):
    """The content of a directory: its logs, and the files that belong to none."""

    logs: list[Members]
    left: list[Left]


def members(directory: str, wanted: Format | None) -> Directory:
    """Find the logs in a directory and below it, grouped by format. only_format: only this format.

    A file takes part if a head or a record in it is proven, or if it is named like a file of a log that is proven
    there, and is empty or torn as a server leaves it.

    Raises:
        InputOutputError: the directory cannot be read.
        UnknownFormatError: there is no log in it.
    """
    candidates = _candidates((name for name, _ in _files(directory)), wanted)
    entries = list(_files(directory))  # listed again, now that the formats are loaded: files appear and vanish
    left = [Left(name, kind) for name, kind in entries if kind != FILE]
    found = _among(directory, [name for name, kind in entries if kind == FILE], candidates)
    return Directory(found.logs, sorted([*found.left, *left]))


def members_among(directory: str, names: list[str], wanted: Format | None) -> Directory:
    """Find the logs among files with these names in a directory (or its URL)."""
    return _among(directory, names, _candidates(names, wanted))


def _candidates(names: Iterable[str], wanted: Format | None) -> list[Format]:
    """Return the formats that files with these names can have."""
    if wanted is not None:
        return [wanted]
    fitting = {one for name in names for one in formats.named_like(os.path.basename(name))}
    return [formats.get(one) for one in formats.names() if one in fitting]


def _among(directory: str, names: list[str], formats_: list[Format]) -> Directory:
    fitting = {name: [one for one in formats_ if _is_named(name, one)] for name in names}
    looks = _looks(directory, {name: known for name, known in fitting.items() if known})
    sorting = _Sorting()
    for name, seen in looks.items():
        sorting.first(name, seen)
    for name, seen in looks.items():
        sorting.second(name, seen, fitting[name])
    logs = [log for one in formats_ for log in sorting.logs(directory, one)]
    if not logs:
        raise _nothing(directory, looks, names)
    plain = [Left(name, PACKED if name.endswith(PACKED_ENDS) else FILE) for name in names if not fitting[name]]
    return Directory(logs, sorted([*sorting.left, *plain]))


def _nothing(directory: str, looks: dict[str, Look], all_names: list[str]) -> BinlogtoolError:
    """Create the error that says why there is no log in a directory."""
    trouble = next((seen.trouble for seen in looks.values() if seen.trouble is not None), None)
    if trouble is not None:
        return InputOutputError(trouble)
    text = f"{directory}: no log files of a known format in this directory"
    names = sorted(looks)[:3]
    more = f" and {len(looks) - 3:,} more" if len(looks) > 3 else ""
    packed = sorted(name for name in all_names if is_packed_log(Left(name, PACKED)))
    if packed:
        way = "name the file: it is unpacked while it is read" if packed[0].endswith(READ_PACKED) else "unpack it first"
        text = f"{text}; compressed: {packed[0]}{f' and {len(packed) - 1:,} more' if packed[1:] else ''} ({way})"
    return UnknownFormatError(f"{text}; named like one, and none: {', '.join(names)}{more}" if names else text)


def _is_named(name: str, format_: Format) -> bool:
    base = os.path.basename(name)
    return any(fnmatch.fnmatchcase(base, pattern) for pattern in format_.files.patterns)


def _looks(directory: str, fitting: dict[str, list[Format]]) -> dict[str, Look]:
    def one(name: str) -> Look:
        return look(os.path.join(directory, name), fitting[name])

    if not is_url(directory):
        return {name: seen for name in fitting if not (seen := one(name)).gone}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(fitting, pool.map(one, fitting), strict=True))


class _Sorting:
    """Assign files to logs: first those that are proven, then those that go with them."""

    def __init__(self) -> None:
        self.left: list[Left] = []
        self._names: dict[tuple[str, str], list[str]] = {}
        self._strays: dict[tuple[str, str], list[str]] = {}
        self._stems: set[tuple[str, str, str]] = set()

    def first(self, name: str, seen: Look) -> None:
        """Add a file that is proven."""
        if seen.proven is not None:
            self._names.setdefault(_key(name, seen.proven), []).append(name)
            stem = seen.proven.files.stem(os.path.basename(name))
            if stem is not None:
                self._stems.add((*_key(name, seen.proven), stem))

    def second(self, name: str, seen: Look, fitting: list[Format]) -> None:
        """Add a file that is not proven."""
        if seen.proven is not None:
            return
        kin = next((one for one in fitting if self._is_kin(name, one)), None)
        if kin is not None and (kin.name in seen.nascent or seen.trouble is not None):
            self._names[_key(name, kin)].append(name)
            return
        packed = seen.packed or name.endswith(PACKED_ENDS)
        kind = PACKED if packed else UNREADABLE if seen.trouble is not None else FILE
        self.left.append(Left(name, kind))
        if kin is not None and not packed:
            self._strays.setdefault(_key(name, kin), []).append(name)

    def _is_kin(self, name: str, format_: Format) -> bool:
        """Return True if the file is named like a file of a log that is proven there."""
        stem = format_.files.stem(os.path.basename(name))
        return stem is not None and (*_key(name, format_), stem) in self._stems

    def logs(self, directory: str, format_: Format) -> Iterator[Members]:
        """Yield the logs of one format, by the directory that each of their files belongs to."""
        order = format_.files.order or sorted
        for kind, home in sorted(self._names):
            if kind == format_.name:
                inside = [_inside(name, home) for name in self._names[kind, home]]
                strays = [_inside(name, home) for name in self._strays.get((kind, home), ())]
                top = os.path.join(directory, home) if home else directory
                yield Members(format_, top, order(inside), sorted(strays))


def _key(name: str, format_: Format) -> tuple[str, str]:
    return format_.name, (format_.files.home or os.path.dirname)(name)


def _inside(name: str, home: str) -> str:
    return os.path.relpath(name, home) if home else name


_KINDS = (
    (stat.S_ISLNK, LINK), (stat.S_ISREG, FILE), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"),
    (stat.S_ISBLK, "device"), (stat.S_ISCHR, "device"),
)  # fmt: skip


def _kind(entry: os.DirEntry[str]) -> str | None:
    """Return the kind of a directory entry; None: it no longer exists."""
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return None
    return next((kind for test, kind in _KINDS if test(mode)), "device")


def _files(directory: str) -> Iterator[tuple[str, str]]:
    """Yield everything that is not a directory, with its kind."""
    seen = 0
    pending = [("", 0)]
    while pending:
        below, depth = pending.pop()
        try:
            entries = sorted(os.scandir(os.path.join(directory, below)), key=lambda entry: entry.name)
        except OSError as error:
            if below and isinstance(error, FileNotFoundError):  # a directory of the log that vanished meanwhile
                continue
            raise InputOutputError(f"{os.path.join(directory, below)}: cannot be listed: {error.strerror}") from error
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES:
                raise InputOutputError(f"{directory}: more than {MAX_ENTRIES:,} entries; name the files instead")
            name = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    pending.append((name, depth + 1))
            elif OWN_FILES not in entry.name and (kind := _kind(entry)) is not None:
                yield name, kind
