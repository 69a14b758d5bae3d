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

from binlogtool.errors import BinlogtoolError, FileVanishedError, UnknownFormatError, UsageError
from binlogtool.formats.base import Format
from binlogtool.formats.detecting import Hints
from binlogtool.log import detect
from binlogtool.log.filters import RecordFilter
from binlogtool.log.followed_file import FileIdentity, FollowedFile, FollowReadOptions
from binlogtool.log.how import ReadOptions
from binlogtool.log.named import resolve_logs
from binlogtool.log.open import LogReader
from binlogtool.log.places import is_gtid_position, is_sequence_position, split_file_prefix
from binlogtool.log.records import FileFinding, FollowLoss, RecordBlock
from binlogtool.log.select import Selection
from binlogtool.log.source import HEAD_BYTES
from binlogtool.log.unknown_columns import ColumnTracker

FollowedItem = RecordBlock | FileFinding | FollowLoss

MAX_IDLE_FILES = 200
"""So many files are held open between the looks: the ones that changed last."""

MAX_HELD_FILES = 600
"""So many are, with those that wait to be read. A process may have 1,024, as a rule."""

_LIST_INTERVAL_S = 0.1
"""Seconds between two listings while files are read."""


class _ListedFile(NamedTuple):
    """A file that a listing found."""

    path: str
    name: str
    format: Format | None
    identity: FileIdentity
    mtime_ns: int


class LogFollower:
    """Follow files and directories by name; use as a context manager.

    selection: as for `Log.blocks`, without `limit`, `tail` and `skip`.
    """

    def __init__(
        self,
        paths: Iterable[str],
        selection: Selection = Selection(),
        read_options: ReadOptions = ReadOptions(),
        *,
        decode: str = "full",
        raw: bool = False,
    ) -> None:
        live_selection = replace(selection, live=True, limit=None)
        self._paths = list(paths)
        self._format = read_options.format
        limits, hints = replace(read_options.limits, timeout=None), read_options.hints or Hints()
        columns = None if live_selection.where is None else ColumnTracker(live_selection.where)
        self._options = FollowReadOptions(
            RecordFilter(live_selection), limits, read_options.backend, hints, decode, raw, columns
        )
        self._followed: dict[str, FollowedFile] = {}
        self._shared: dict[str, Any] = {}
        self._reported: dict[str, str] = {}
        self._selection = live_selection
        self._is_stopped = False
        self._removed: list[FollowedFile] = []
        self._newest_paths: set[str] = set()
        self._listed_at = 0.0
        self._is_first_look = True

    def look(self) -> Iterator[FollowedItem]:
        """Yield what is new since the last call: records, damage, and what can no longer be read.

        Raises:
            BinlogtoolError: the first call finds nothing to follow.
            UsageError: the selection is invalid.
        """
        self._update_listing()
        while self._removed:
            yield from self._list_while_reading(self._read_rest(self._removed.pop(0)))
        for file in list(self._followed.values()):
            yield from self._list_while_reading(self._read_new(file))
            if file.path not in self._newest_paths and self._followed.get(file.path) is file:
                file.release()
        self._is_first_look = False

    @property
    def unknown_column(self) -> str | None:
        """A message about a column of the condition that no table described so far has; None = all are known."""
        return None if self._options.columns is None else self._options.columns.unknown_message

    def _list_while_reading(self, parts: Iterator[FollowedItem]) -> Iterator[FollowedItem]:
        """Yield the parts unchanged; in between, list the files again from time to time, to hold new ones open."""
        for part in parts:
            yield part
            if time.monotonic() > self._listed_at + _LIST_INTERVAL_S:
                self._update_listing()
        if time.monotonic() > self._listed_at + _LIST_INTERVAL_S:
            self._update_listing()

    def _update_listing(self) -> None:
        """List the files, and hold open the newest ones and those that wait to be read."""
        listed = list(self._iter_listed())
        self._removed += self._adopt_listing(listed)
        self._newest_paths = {one.path for one in sorted(listed, key=_mtime)[-MAX_IDLE_FILES:]}
        held_count = sum(one.handle is not None for one in (*self._followed.values(), *self._removed))
        for path, file in list(self._followed.items()):
            if file.handle is None and (path in self._newest_paths or (file.size < 0 and held_count < MAX_HELD_FILES)):
                held_count += 1
                if not file.hold() and file.size < 0:
                    del self._followed[path]  # it appeared and vanished
        self._listed_at = time.monotonic()

    # -- what is there ---------------------------------------------------------------------------------------------

    def _iter_listed(self) -> Iterator[_ListedFile]:
        for path in self._paths:
            for name, format_, file_path in self._iter_members(path):
                try:
                    status = os.stat(file_path)
                except OSError as error:
                    if not self._listed_at and file_path == path:
                        raise FileVanishedError(f"{path}: cannot be opened: {error.strerror}") from error
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield _ListedFile(file_path, name, format_, (status.st_dev, status.st_ino), status.st_mtime_ns)
                elif not self._listed_at and file_path == path:
                    raise UsageError(f"{path}: only files and directories can be followed")

    def _iter_members(self, path: str) -> Iterator[tuple[str, Format | None, str]]:
        """Yield name, format and path of each file, without the temporary files of a server."""
        if not os.path.isdir(path):
            yield path, None if self._format == "auto" else detect.find_format(self._format), path
            return
        try:
            log_groups = resolve_logs(path, self._format)
        except UsageError:
            raise
        except BinlogtoolError:
            if not self._listed_at:
                raise
            return  # all its files are gone at the moment
        for group in log_groups:
            temporary = () if group.format is None else group.format.files.temporary_patterns
            for name in group.names:
                if not any(fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in temporary):
                    yield name, group.format, group.member_path(name)

    def _adopt_listing(self, listed: Sequence[_ListedFile]) -> list[FollowedFile]:
        """Follow the listed files, in this order; return the files that no name leads to any more."""
        old_files, self._followed = self._followed, {}
        kept_paths = {
            one.path for one in listed if (old_file := old_files.get(one.path)) and old_file.identity == one.identity
        }
        orphans = {old.identity: old for path, old in old_files.items() if path not in kept_paths}
        for file in listed:
            if file.path in kept_paths:
                self._followed[file.path] = old_files[file.path]
                continue
            renamed = orphans.pop(file.identity, None)
            if renamed is not None:
                renamed.path, renamed.name = file.path, file.name
            self._followed[file.path] = renamed or FollowedFile(file.path, file.name, file.format, file.identity)
        self._reported = {path: text for path, text in self._reported.items() if path in self._followed}
        self._split_selection()
        return list(orphans.values())

    def _split_selection(self) -> None:
        """Decide in which of the new files each position applies; files after a stop position are not followed."""
        selection, new_files = self._selection, [one for one in self._followed.values() if one.file_selection is None]
        if not new_files or (selection.start is None and selection.stop is None and not self._is_stopped):
            for file in new_files:
                file.file_selection = selection
            return
        plan = [(one.path, one.name, one.format) for one in self._followed.values()]
        parts = LogReader(plan, self._options.limits, self._options.backend, self._options.hints).split_selection(
            selection
        )
        file_selections = dict(zip(self._followed, parts, strict=False))
        for file in new_files:
            file.file_selection = file_selections.get(file.path)
            if file.file_selection is None or self._is_stopped:
                del self._followed[file.path]
        self._is_stopped = self._is_stopped or len(file_selections) < len(plan) or _is_file_known(selection.stop, plan)
        if _is_file_known(selection.start, plan):
            self._selection = replace(selection, start=None)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read_rest(self, file: FollowedFile) -> Iterator[FollowedItem]:
        """Yield the rest of a file that is gone."""
        if file.handle is not None:
            yield from self._read_new(file)
            yield from file.report_pending(gone=True)
        elif file.size < 0:
            yield self._make_missed_loss(file)
        file.release()

    def _read_new(self, file: FollowedFile) -> Iterator[FollowedItem]:
        try:
            for part in file.read_new(self._options, self._shared):
                if not isinstance(part, FollowLoss) or self._is_news(part):
                    yield part
        except UsageError:
            raise
        except BinlogtoolError as error:
            if self._is_first_look and file.path in self._paths:
                raise
            if isinstance(
                error, FileVanishedError
            ):  # it was not held open; if it was read, the next listing is without it
                yield from [self._make_missed_loss(file)] if file.size < 0 else []
                return
            if not isinstance(error, UnknownFormatError) or file.size >= HEAD_BYTES:  # else it is still too short
                loss = FollowLoss(file.path, str(error).removeprefix(f"{file.path}: "), error.exit_code)
                if self._is_news(loss):
                    yield loss

    @staticmethod
    def _make_missed_loss(file: FollowedFile) -> FollowLoss:
        file.size = 0
        return FollowLoss(file.path, "removed before it was read", FileVanishedError.exit_code)

    def _is_news(self, loss: FollowLoss) -> bool:
        """Return True if this loss was not reported before."""
        if self._reported.get(loss.file) == loss.reason:
            return False
        self._reported[loss.file] = loss.reason
        return True

    def close(self) -> None:
        """Release all files."""
        for file in (*self._followed.values(), *self._removed):
            file.release()

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _mtime(file: _ListedFile) -> int:
    return file.mtime_ns


def _is_file_known(position: str | None, plan: Sequence[tuple[str, str, Format | None]]) -> bool:
    """Return True if the file in which a position applies is known; never for one that applies in all files."""
    if position is None or is_gtid_position(position) or is_sequence_position(position):
        return False
    name, _ = split_file_prefix(position)
    return name is None or any(name in (path, os.path.basename(path)) for path, _, _ in plan)
