"""Following of logs: what is appended to files, and what new files bring; files appear, vanish, and are renamed.

A file is held open from the listing that finds it, so that one that is removed or replaced meanwhile is still read to
its end. State is kept only for existing files.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from binlogtool.errors import BinlogtoolError, UnknownFormatError, UsageError, VanishedError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.log import detect
from binlogtool.log.filters import Filter
from binlogtool.log.followed_file import Followed, Identity, Wanted
from binlogtool.log.how import How
from binlogtool.log.named import groups
from binlogtool.log.open import Log
from binlogtool.log.places import by_gtid, by_sequence, named
from binlogtool.log.records import Block, Lost, Trouble
from binlogtool.log.select import Selection
from binlogtool.log.source import HEAD_BYTES
from binlogtool.log.unknown_columns import Columns

Part = Block | Trouble | Lost

HELD = 200
"""So many files are held open between the looks: the ones that changed last."""

MOST_HELD = 600
"""So many are, with those that wait to be read. A process may have 1,024, as a rule."""

_OFTEN = 0.1
"""Seconds between two listings while files are read."""


class _Listed(NamedTuple):
    """A file that a listing found."""

    path: str
    name: str
    format: Format | None
    identity: Identity
    changed: int


class Follower:
    """Follow files and directories by name; use as a context manager.

    selection: as for `Log.blocks`, without `limit`, `tail` and `skip`.
    """

    def __init__(
        self,
        paths: Iterable[str],
        selection: Selection = Selection(),
        how: How = How(),
        *,
        decode: str = "full",
        raw: bool = False,
    ) -> None:
        chosen = replace(selection, live=True, limit=None)
        self._paths = list(paths)
        self._format = how.format
        limits, hints = replace(how.limits, timeout=None), how.hints or Hints()
        columns = None if chosen.where is None else Columns(chosen.where)
        self._wanted = Wanted(Filter(chosen), limits, how.backend, hints, decode, raw, columns)
        self._files: dict[str, Followed] = {}
        self._shared: dict[str, Any] = {}
        self._told: dict[str, str] = {}
        self._places = chosen
        self._stopped = False
        self._gone: list[Followed] = []
        self._newest: set[str] = set()
        self._listed = 0.0
        self._first = True

    def look(self) -> Iterator[Part]:
        """Yield what is new since the last call: records, damage, and what can no longer be read.

        Raises:
            BinlogtoolError: the first call finds nothing to follow.
            UsageError: the selection is invalid.
        """
        self._list()
        while self._gone:
            yield from self._watched(self._rest(self._gone.pop(0)))
        for one in list(self._files.values()):
            yield from self._watched(self._read(one))
            if one.path not in self._newest and self._files.get(one.path) is one:
                one.release()
        self._first = False

    @property
    def unknown(self) -> str | None:
        """A message about a column of the condition that no table described so far has; None = all are known."""
        return None if self._wanted.columns is None else self._wanted.columns.unknown

    def _watched(self, parts: Iterator[Part]) -> Iterator[Part]:
        """Yield the parts unchanged; in between, list the files again from time to time, to hold new ones open."""
        for part in parts:
            yield part
            if time.monotonic() > self._listed + _OFTEN:
                self._list()
        if time.monotonic() > self._listed + _OFTEN:
            self._list()

    def _list(self) -> None:
        """List the files, and hold open the newest ones and those that wait to be read."""
        listed = list(self._found())
        self._gone += self._take(listed)
        self._newest = {one.path for one in sorted(listed, key=_changed)[-HELD:]}
        held = sum(one.handle is not None for one in (*self._files.values(), *self._gone))
        for path, one in list(self._files.items()):
            if one.handle is None and (path in self._newest or (one.size < 0 and held < MOST_HELD)):
                held += 1
                if not one.hold() and one.size < 0:
                    del self._files[path]  # it appeared and vanished
        self._listed = time.monotonic()

    # -- what is there ---------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[_Listed]:
        for path in self._paths:
            for name, format_, where in self._members(path):
                try:
                    status = os.stat(where)
                except OSError as error:
                    if not self._listed and where == path:
                        raise VanishedError(f"{path}: cannot be opened: {error.strerror}") from error
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield _Listed(where, name, format_, (status.st_dev, status.st_ino), status.st_mtime_ns)
                elif not self._listed and where == path:
                    raise UsageError(f"{path}: only files and directories can be followed")

    def _members(self, path: str) -> Iterator[tuple[str, Format | None, str]]:
        """Yield name, format and path of each file, without the temporary files of a server."""
        if not os.path.isdir(path):
            yield path, None if self._format == "auto" else detect.by_name(self._format), path
            return
        try:
            found = groups(path, self._format)
        except UsageError:
            raise
        except BinlogtoolError:
            if not self._listed:
                raise
            return  # all its files are gone at the moment
        for group in found:
            passing = () if group.format is None else group.format.files.passing
            for name in group.names:
                if not any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in passing):
                    yield name, group.format, group.member_path(name)

    def _take(self, listed: Sequence[_Listed]) -> list[Followed]:
        """Follow the listed files, in this order; return the files that no name leads to any more."""
        before, self._files = self._files, {}
        kept = {one.path for one in listed if (old := before.get(one.path)) and old.identity == one.identity}
        left = {old.identity: old for path, old in before.items() if path not in kept}
        for one in listed:
            if one.path in kept:
                self._files[one.path] = before[one.path]
                continue
            renamed = left.pop(one.identity, None)
            if renamed is not None:
                renamed.path, renamed.name = one.path, one.name
            self._files[one.path] = renamed or Followed(one.path, one.name, one.format, one.identity)
        self._told = {path: text for path, text in self._told.items() if path in self._files}
        self._share()
        return list(left.values())

    def _share(self) -> None:
        """Decide in which of the new files each position applies; files after a stop position are not followed."""
        chosen, new = self._places, [one for one in self._files.values() if one.share is None]
        if not new or (chosen.start is None and chosen.stop is None and not self._stopped):
            for one in new:
                one.share = chosen
            return
        plan = [(one.path, one.name, one.format) for one in self._files.values()]
        parts = Log(plan, self._wanted.limits, self._wanted.backend, self._wanted.hints).shares(chosen)
        shares = dict(zip(self._files, parts, strict=False))
        for one in new:
            one.share = shares.get(one.path)
            if one.share is None or self._stopped:
                del self._files[one.path]
        self._stopped = self._stopped or len(shares) < len(plan) or _is_met(chosen.stop, plan)
        if _is_met(chosen.start, plan):
            self._places = replace(chosen, start=None)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _rest(self, one: Followed) -> Iterator[Part]:
        """Yield the rest of a file that is gone."""
        if one.handle is not None:
            yield from self._read(one)
            yield from one.settle(gone=True)
        elif one.size < 0:
            yield self._missed(one)
        one.release()

    def _read(self, one: Followed) -> Iterator[Part]:
        try:
            for part in one.look(self._wanted, self._shared):
                if not isinstance(part, Lost) or self._is_news(part):
                    yield part
        except UsageError:
            raise
        except BinlogtoolError as error:
            if self._first and one.path in self._paths:
                raise
            if isinstance(error, VanishedError):  # it was not held open; if it was read, the next listing is without it
                yield from [self._missed(one)] if one.size < 0 else []
                return
            if not isinstance(error, UnknownFormatError) or one.size >= HEAD_BYTES:  # else it is still too short
                lost = Lost(one.path, str(error).removeprefix(f"{one.path}: "), error.exit_code)
                if self._is_news(lost):
                    yield lost

    @staticmethod
    def _missed(one: Followed) -> Lost:
        one.size = 0
        return Lost(one.path, "removed before it was read", VanishedError.exit_code)

    def _is_news(self, lost: Lost) -> bool:
        """Return True if this loss was not reported before."""
        if self._told.get(lost.file) == lost.why:
            return False
        self._told[lost.file] = lost.why
        return True

    def close(self) -> None:
        """Release all files."""
        for one in (*self._files.values(), *self._gone):
            one.release()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _changed(one: _Listed) -> int:
    return one.changed


def _is_met(position: str | None, plan: Sequence[tuple[str, str, Format | None]]) -> bool:
    """Return True if the file in which a position applies is known; never for one that applies in all files."""
    if position is None or by_gtid(position) or by_sequence(position):
        return False
    name, _ = named(position)
    return name is None or any(name in (path, os.path.basename(path)) for path, _, _ in plan)
