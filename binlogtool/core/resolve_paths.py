"""Resolve PATH arguments to log files and log sets; prove by content that a file is a log.

Symbolic links are not followed; depth and number of entries are bounded.
"""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core import notify_progress_listener
from binlogtool.core import open_file as open_file_module
from binlogtool.core.decompress_forward_only import COMPRESSED_HEADS
from binlogtool.core.notify_progress_listener import (
    COMPRESSED,
    COMPRESSED_SUFFIXES,
    DESTROYED_LOG,
    FILE,
    LINK,
    LINK_TO_LOG,
    READABLE_COMPRESSED_SUFFIXES,
    UNFINISHED_COPY,
    UNLISTABLE,
    UNREADABLE,
    UNREADABLE_LOG,
    SkippedFile,
    is_compressed_log,
    is_unfinished_copy,
    strip_compressed_suffix,
)
from binlogtool.core.open_file import (
    FileSource,
    Source,
    TruncatedSource,
    base_name,
    detect_file_compression,
    is_url,
    list_remote_names,
    open_source,
    read_head,
    read_range,
)
from binlogtool.core.resync import CHECKSUM_RIGHT
from binlogtool.core.scan_file import Scan
from binlogtool.errors import BinlogtoolError, InputOutputError, UnknownFormatError
from binlogtool.format_api.format import FileHead, Format
from binlogtool.format_api.layout import Batch, LogFileLayout
from binlogtool.limits import MIB, Limits

# --- The newest file of a rotated log, by name ---

_DIGITS = re.compile(r"\d+")

NewestByKind = Mapping[str, tuple[tuple[int, ...], str]]
"""Name with digits replaced -> the highest numbers in such a name, and the file that has them."""


def find_newest_files(names: Iterable[str]) -> NewestByKind:
    """Return the newest file of each rotated log, by the numbers in the names."""
    newest_by_kind: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in names:
        kind, numbers = split_numbers(name)
        newest_by_kind[kind] = max(newest_by_kind.get(kind, (numbers, name)), (numbers, name))
    return newest_by_kind


def find_newer_file(name: str, newest_by_kind: NewestByKind) -> str | None:
    """Return the newest file with the same name except for higher numbers; None if this file is the newest."""
    kind, number = split_numbers(name)
    numbers, other = newest_by_kind.get(kind, (number, name))
    return other if numbers > number else None


def split_numbers(name: str) -> tuple[str, tuple[int, ...]]:
    """Return a name with its digits replaced, and its numbers."""
    return _DIGITS.sub("#", name), tuple(int(digits) for digits in _DIGITS.findall(name) if len(digits) < 100)


# --- Proof that a file is a log ---

NASCENT_SCORE = 20
"""Minimum score of a `FormatMatch` for a file that a server may leave (empty or torn)."""
SEARCHED_BYTES = 4 * MIB
"""Bytes of a file without a valid head that are searched for a record."""


class FileProbeResult(msgspec.Struct, frozen=True):
    """Result of probing a file: the format that its content proves, or why there is none.

    Args:
        proven: the format that is proven.
        nascent: the formats whose server may leave a file like this (empty or torn).
        error: why the file cannot be read.
        is_compressed: the file is compressed.
        is_blank: the file is empty, or its first bytes are zeros.
        is_other: the content is a text, a program or an archive: no server wrote it as a log.
        is_gone: the file was removed since it was listed.
    """

    proven: Format | None = None
    nascent: tuple[str, ...] = ()
    error: str | None = None
    is_compressed: bool = False
    is_blank: bool = False
    is_other: bool = False
    is_gone: bool = False


def probe_file(path: str, candidates: Sequence[Format]) -> FileProbeResult:
    """Read the start of a file, once, and test it for these formats."""
    source: Source
    try:
        source = open_source(path) if is_url(path) else FileSource(path)
    except InputOutputError as error:
        return FileProbeResult(error=str(error), is_gone=not is_url(path) and not os.path.lexists(path))
    try:
        return _probe_source(source, path, candidates)
    except InputOutputError as error:
        return FileProbeResult(error=str(error))
    finally:
        source.close()


def _probe_source(source: Source, path: str, candidates: Sequence[Format]) -> FileProbeResult:
    data = read_head(source)
    if source.size is None or data.startswith(COMPRESSED_HEADS):
        return FileProbeResult(is_compressed=True)
    head = FileHead(data, base_name(path), source.size, peek=partial(read_range, source))
    matches = sorted(((one.reading.detect(head), one) for one in candidates), key=lambda pair: -pair[0].score)
    best_match, format_ = matches[0]
    if best_match.is_proven:
        return FileProbeResult(format_)
    for _, candidate in matches if data else ():
        if _has_proven_record(source, head, candidate):
            return FileProbeResult(candidate)
    zeros = not any(data)
    nascent = tuple(one.name for match, one in matches if match.score >= NASCENT_SCORE or zeros)
    return FileProbeResult(nascent=nascent, is_blank=zeros, is_other=data.startswith(_OTHER_HEADS) or _is_text(data))


_OTHER_HEADS = (b"\x7fELF", b"PK\x03\x04", b"7z\xbc\xaf")
"""First bytes of core dumps and archives, whose names may end in digits as those of logs do."""
_TEXT_BYTES = bytes([*b"\t\n\r", *range(32, 127), *range(128, 256)])


def _is_text(data: bytes) -> bool:
    """Return True if the bytes are text in UTF-8; their end may cut a character."""
    if not data or data.translate(None, _TEXT_BYTES):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _has_proven_record(source: Source, head: FileHead, format_: Format) -> bool:
    """Return True if the first bytes of a file, whose head proves nothing, contain a proven record."""
    try:
        layout = format_.reading.layout(head, Limits())
    except BinlogtoolError:
        return False
    if layout.frame.checksum is None and not layout.readable:  # structure alone is no proof in an arbitrary file
        return False
    layout = replace(layout, readable=layout.frame.sync is not None or layout.readable)
    part = TruncatedSource(source, SEARCHED_BYTES)
    from binlogtool.schema.backends import PythonBackend

    scan = Scan(part, format_, layout, PythonBackend(), Limits(), rows=False)
    return any(isinstance(one, Batch) and _has_proven_frame(one, layout) for one in scan.segments())


def _has_proven_frame(batch: Batch, layout: LogFileLayout) -> bool:
    """Return True if the checksum matches, or, where the writer stored none, if the format's own proof succeeds."""
    count = batch.frames.count
    if any(batch.frames["checksum"][i] == CHECKSUM_RIGHT for i in range(count)):
        return True
    prove = layout.frame.prove
    return prove is not None and any(prove(batch.frame_bytes(i), layout.context) for i in range(count))


# --- Discovery of log sets ---

MAX_DEPTH = 3
MAX_ENTRIES = 200_000
OWN_FILE_MARKER = ".binlogtool-"
"""Part of the name of all files that repairs leave beside a log (undo files); they are not members of the log."""
_PARALLEL_PROBES = 16
"""Number of remote files that are probed at the same time."""


class LogMembers(NamedTuple):
    """One log: its directory, and the names of its files relative to it, in the log's own order.

    strays: files with names of this log whose content does not belong to it; they are skipped.
    """

    format: Format
    directory: str
    names: list[str]
    strays: list[str]


class NoLogFoundError(UnknownFormatError):
    """A directory has no log that can be read as it is. skipped: its files, which may be compressed logs."""

    skipped: Sequence[SkippedFile] = ()


class DirectoryListing(NamedTuple):
    """Content of a directory: its logs, and the files that belong to no log."""

    logs: list[LogMembers]
    skipped: list[SkippedFile]


def find_logs_in_directory(
    directory: str, only_format: Format | None, skip_unlistable: bool = False
) -> DirectoryListing:
    """Find the logs in a directory and below it, grouped by format.

    Args:
        only_format: The only format to look for; None = all.
        skip_unlistable: List a subdirectory that cannot be read among the skipped files instead of failing.

    A file is a member if its head or a record in it is proven, or if it has a name of a log that is proven in the same
    directory and is empty, torn as a server may leave it, or unreadable.

    Raises:
        InputOutputError: the directory cannot be read.
        UnknownFormatError: the directory contains no log.
    """
    candidates = _candidate_formats((name for name, _ in _walk_directory(directory)), only_format)
    is_named = only_format is not None
    entries = list(_walk_directory(directory))  # again, now that the formats are loaded: files come and go
    skipped = [
        SkippedFile(name, kind)
        for name, kind in _mark_links_that_lead_outside(directory, entries, candidates)
        if kind != FILE
    ]
    unlistable = [os.path.join(directory, one.name) for one in skipped if one.kind == UNLISTABLE]
    if unlistable and not skip_unlistable:
        raise InputOutputError(f"{unlistable[0]}: the directory cannot be listed; check its owner and mode")
    try:
        listing = _group_files_by_log(directory, [name for name, kind in entries if kind == FILE], candidates, is_named)
    except NoLogFoundError:
        if unlistable:
            raise InputOutputError(f"{unlistable[0]}: the directory cannot be listed; no other log was found") from None
        raise
    return DirectoryListing(listing.logs, sorted([*listing.skipped, *skipped]))


def _mark_links_that_lead_outside(
    directory: str, entries: Iterable[tuple[str, str]], candidates: Sequence[Format]
) -> Iterator[tuple[str, str]]:
    """Yield the entries, with the kind of links that are named like logs and lead out of the listed files."""
    entries = list(entries)
    links = {name for name, kind in entries if kind == LINK and any(_is_log_name(name, one) for one in candidates)}
    if links:
        root = os.path.realpath(directory)
        targets = {name: os.path.realpath(os.path.join(root, name)) for name in links}
        files = {os.path.join(root, name) for name, kind in entries if kind == FILE}
        links = {name for name, target in targets.items() if target not in files}
    yield from ((name, LINK_TO_LOG if name in links else kind) for name, kind in entries)


def _is_log_name(name: str, format_: Format) -> bool:
    """Return True if a name shows that a file is, or was, a log of this format."""
    base, files = os.path.basename(name), format_.files
    return files.name_stem(base) is not None and any(fnmatch.fnmatchcase(base, one) for one in files.log_patterns)


def find_logs_among(directory: str, names: list[str], only_format: Format | None) -> DirectoryListing:
    """Find the logs among the named files of a directory (or its URL)."""
    return _group_files_by_log(directory, names, _candidate_formats(names, only_format), only_format is not None)


def _candidate_formats(names: Iterable[str], only_format: Format | None) -> list[Format]:
    """Return the formats that files with these names can have."""
    if only_format is not None:
        return [only_format]
    matching_names = {one for name in names for one in formats.find_by_file_name(os.path.basename(name))}
    return [formats.load_format(one) for one in formats.list_names() if one in matching_names]


def _group_files_by_log(
    directory: str, names: list[str], formats_: list[Format], is_format_named: bool
) -> DirectoryListing:
    """Group files by log.

    is_format_named: the caller names the format, so that a file with its one fixed name is of a log.
    """
    candidates = {name: [one for one in formats_ if _matches_name_patterns(name, one)] for name in names}
    probe_results = _probe_files(directory, {name: known for name, known in candidates.items() if known})
    sorting = _LogGrouper()
    for name, result in probe_results.items():
        sorting.assign_proven_file(name, result)
    for name, result in probe_results.items():
        sorting.assign_unproven_file(name, result, candidates[name])
    logs = [log for one in formats_ for log in sorting.iter_logs(directory, one)]
    if not logs and is_format_named:
        sorting.add_fixed_names(formats_[0])
        logs = list(sorting.iter_logs(directory, formats_[0]))
    unmatched_files = [SkippedFile(name, _classify_unmatched(name)) for name in names if not candidates[name]]
    skipped = sorted([*sorting.skipped, *unmatched_files])
    if not logs:
        error = _make_no_log_error(directory, probe_results, names)
        if isinstance(error, NoLogFoundError):
            error.skipped = skipped
        raise error
    return DirectoryListing(logs, skipped)


def _classify_unmatched(name: str) -> str:
    """Return the kind of a file whose name is that of no log."""
    if is_unfinished_copy(name):
        return UNFINISHED_COPY
    return COMPRESSED if name.endswith(COMPRESSED_SUFFIXES) else FILE


def _make_no_log_error(
    directory: str, probe_results: dict[str, FileProbeResult], all_names: list[str]
) -> BinlogtoolError:
    """Create the error that explains why a directory contains no log."""
    trouble = next((seen.error for seen in probe_results.values() if seen.error is not None), None)
    if trouble is not None:
        return InputOutputError(trouble)
    text = f"{directory}: no log files of a known format in this directory"
    names = sorted(probe_results)[:3]
    more = f" and {len(probe_results) - 3:,} more" if len(probe_results) > 3 else ""
    compressed = sorted(name for name in all_names if is_compressed_log(SkippedFile(name, COMPRESSED)))
    if compressed:
        advice = (
            "name the file itself to read it: it is decompressed on the fly"
            if compressed[0].endswith(READABLE_COMPRESSED_SUFFIXES)
            else "unpack it first"
        )
        text = (
            f"{text}; compressed: "
            f"{compressed[0]}{f' and {len(compressed) - 1:,} more' if compressed[1:] else ''} ({advice})"
        )
    return NoLogFoundError(f"{text}; named like a log file, but not one: {', '.join(names)}{more}" if names else text)


def _matches_name_patterns(name: str, format_: Format) -> bool:
    base = os.path.basename(name)
    return any(fnmatch.fnmatchcase(base, pattern) for pattern in format_.files.patterns)


def _probe_files(directory: str, candidates: dict[str, list[Format]]) -> dict[str, FileProbeResult]:
    def probe(name: str) -> FileProbeResult:
        return probe_file(os.path.join(directory, name), candidates[name])

    if not is_url(directory):
        return {name: result for name in candidates if not (result := probe(name)).is_gone}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_PARALLEL_PROBES) as pool:
        return dict(zip(candidates, pool.map(probe, candidates), strict=True))


class _LogGrouper:
    """Assign files to logs: first the proven ones, then those that belong to the same logs."""

    def __init__(self) -> None:
        self.skipped: list[SkippedFile] = []
        self._member_names: dict[tuple[str, str], list[str]] = {}
        self._strays: dict[tuple[str, str], list[str]] = {}
        self._stems: set[tuple[str, str, str]] = set()
        self._proven_directories: set[str] = set()

    def assign_proven_file(self, name: str, result: FileProbeResult) -> None:
        """Add the file if it is proven."""
        if result.proven is not None:
            self._member_names.setdefault(_log_key(name, result.proven), []).append(name)
            self._proven_directories.add(os.path.dirname(name))
            stem = result.proven.files.name_stem(os.path.basename(name))
            if stem is not None:
                self._stems.add((*_log_key(name, result.proven), stem))

    def assign_unproven_file(self, name: str, probe_result: FileProbeResult, candidates: list[Format]) -> None:
        """Assign an unproven file to the proven log that its name fits, else to the skipped files with its kind."""
        if probe_result.proven is not None:
            return
        matching_format = next((one for one in candidates if self._belongs_to_proven_log(name, one)), None)
        if matching_format is not None and (
            matching_format.name in probe_result.nascent or probe_result.error is not None
        ):
            self._member_names[_log_key(name, matching_format)].append(name)
            return
        is_compressed = probe_result.is_compressed or name.endswith(COMPRESSED_SUFFIXES)
        kind = COMPRESSED if is_compressed else UNREADABLE if probe_result.error is not None else FILE
        if kind != COMPRESSED and matching_format is None and any(_is_log_name(name, one) for one in candidates):
            kind = self._classify_unproven_log(name, probe_result)
        self.skipped.append(SkippedFile(name, kind))
        if matching_format is not None and not is_compressed:
            self._strays.setdefault(_log_key(name, matching_format), []).append(name)

    def _classify_unproven_log(self, name: str, result: FileProbeResult) -> str:
        """Return the kind of a file that is named like a log and belongs to no proven log.

        Beside proven logs, a file with arbitrary bytes is more likely something else.
        """
        if result.error is not None:
            return UNREADABLE_LOG
        has_proven_log = os.path.dirname(name) in self._proven_directories
        return DESTROYED_LOG if result.is_blank or not (has_proven_log or result.is_other) else FILE

    def add_fixed_names(self, format_: Format) -> None:
        """Add the skipped files whose name is a pattern of the format without wildcards."""
        for one in [*self.skipped]:
            if one.kind in (FILE, DESTROYED_LOG) and os.path.basename(one.name) in format_.files.patterns:
                self.skipped.remove(one)
                self._member_names.setdefault(_log_key(one.name, format_), []).append(one.name)

    def _belongs_to_proven_log(self, name: str, format_: Format) -> bool:
        """Return True if the file has a name of a log of this format that is proven in its directory."""
        stem = format_.files.name_stem(os.path.basename(name))
        return stem is not None and (*_log_key(name, format_), stem) in self._stems

    def iter_logs(self, directory: str, format_: Format) -> Iterator[LogMembers]:
        """Yield the logs of one format, grouped by the directory of the log that each file belongs to."""
        sort_names = format_.files.sort_names or sorted
        for format_name, log_directory in sorted(self._member_names):
            if format_name == format_.name:
                member_names = [
                    _relative_name(name, log_directory) for name in self._member_names[format_name, log_directory]
                ]
                strays = [
                    _relative_name(name, log_directory) for name in self._strays.get((format_name, log_directory), ())
                ]
                path = os.path.join(directory, log_directory) if log_directory else directory
                yield LogMembers(format_, path, sort_names(member_names), sorted(strays))


def _log_key(name: str, format_: Format) -> tuple[str, str]:
    return format_.name, (format_.files.log_directory or os.path.dirname)(name)


def _relative_name(name: str, log_directory: str) -> str:
    return os.path.relpath(name, log_directory) if log_directory else name


_FILE_KINDS = (
    (stat.S_ISLNK, LINK), (stat.S_ISREG, FILE), (stat.S_ISFIFO, "FIFO"), (stat.S_ISSOCK, "socket"),
    (stat.S_ISBLK, "device"), (stat.S_ISCHR, "device"),
)  # fmt: skip


def _file_kind(entry: os.DirEntry[str]) -> str | None:
    """Return the kind of a directory entry (file, symbolic link, …); None if it no longer exists."""
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return None
    return next((kind for test, kind in _FILE_KINDS if test(mode)), "device")


def find_entry_kind(path: str) -> str | None:
    """Return the kind of what a path names, a symbolic link not followed; None if it does not exist."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return None
    return next((kind for test, kind in ((stat.S_ISDIR, "directory"), *_FILE_KINDS) if test(mode)), "device")


def _walk_directory(directory: str) -> Iterator[tuple[str, str]]:
    """Yield all entries below a directory except directories that can be listed, as path and kind."""
    entry_count = 0
    pending = [("", 0)]
    while pending:
        subdirectory, depth = pending.pop()
        try:
            entries = sorted(os.scandir(os.path.join(directory, subdirectory)), key=lambda entry: entry.name)
        except OSError as error:
            if subdirectory:
                if not isinstance(error, FileNotFoundError):  # else it vanished meanwhile
                    yield subdirectory, UNLISTABLE
                continue
            raise InputOutputError(
                f"{os.path.join(directory, subdirectory)}: cannot be listed: {error.strerror}"
            ) from error
        for entry in entries:
            entry_count += 1
            if entry_count > MAX_ENTRIES:
                raise InputOutputError(f"{directory}: more than {MAX_ENTRIES:,} entries; name the files instead")
            name = os.path.join(subdirectory, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    pending.append((name, depth + 1))
            elif OWN_FILE_MARKER not in entry.name and (kind := _file_kind(entry)) is not None:
                yield name, kind


# --- PATH arguments ---


class LogGroup(msgspec.Struct, frozen=True):
    """One log that a PATH argument names: a set (directory) or a single file. Names are in the log's own order.

    strays: files with names of this log whose content does not belong to it; they are skipped.
    compressed: member -> the name of its compressed file.
    unnamed: existing files of this log that the user did not name.
    """

    path: str
    format: Format | None
    names: tuple[str, ...]
    is_set: bool
    strays: tuple[str, ...] = ()
    compressed: Mapping[str, str] = {}
    unnamed: tuple[str, ...] = ()

    def member_path(self, name: str) -> str:
        """Return the path of a member."""
        return os.path.join(self.path, self.compressed.get(name, name)) if self.is_set else self.path


class ResolvedPath(NamedTuple):
    """The logs that a path names, and the files of its directory that belong to none of them."""

    groups: list[LogGroup]
    skipped: list[SkippedFile]


def resolve_path(path: str, format_name: str, skip_unlistable: bool = False) -> ResolvedPath:
    """Return the logs that a path names. skip_unlistable: see `find_logs`.

    Raises:
        InputOutputError, UnknownFormatError, UsageError.
    """
    only_format = None if format_name == "auto" else open_file_module.find_format(format_name)
    if is_url(path):
        names = list_remote_names(path)
        listing = None if names is None else find_logs_among(path.rstrip("/"), names, only_format)
    else:
        listing = (
            find_logs_in_directory(path, only_format, skip_unlistable) if path != "-" and os.path.isdir(path) else None
        )
    if listing is None:
        return ResolvedPath([LogGroup(path, only_format, (path,), False)], [])
    logs = [LogGroup(log.directory, log.format, tuple(log.names), True, tuple(log.strays)) for log in listing.logs]
    return ResolvedPath(logs, listing.skipped)


def resolve_logs(path: str, format_name: str) -> list[LogGroup]:
    """Return the logs that a path names; report skipped files to the progress listener. Raises as `resolve_path`."""
    resolved = resolve_path(path, format_name)
    notify_progress_listener.report_skipped_files(path, resolved.skipped)
    return resolved.groups


# --- Compressed files, unpacked for readers that need any offset of any file ---


_ZEROS = bytes(MIB)


class UnpackedLog(NamedTuple):
    """A log whose compressed files are unpacked.

    stored_paths: path of an unpacked file -> path of the compressed file. damaged: member that could not be unpacked
    completely, and remains compressed -> why.
    """

    group: LogGroup
    stored_paths: Mapping[str, str] = MappingProxyType({})
    damaged: Mapping[str, str] = MappingProxyType({})

    def restore_path(self, path: str) -> str:
        """Replace the path of an unpacked file by the path of its compressed file; other paths stay unchanged."""
        return self.stored_paths.get(path, path)

    def restore_paths_in_message(self, message: str) -> str:
        """Replace the paths of unpacked files in a message by the paths of their compressed files."""
        for path, stored_path in self.stored_paths.items():
            message = message.replace(path, stored_path)
        return message


@contextmanager
def unpack_compressed_members(group: LogGroup) -> Iterator[UnpackedLog]:
    """Return a context manager with the log, whose compressed files are unpacked until its end.

    Raises:
        InputOutputError: a file cannot be read, or the temporary directory cannot be written.
    """
    is_single = not group.is_set and not is_url(group.path) and detect_file_compression(group.path) is not None
    if not group.compressed and not is_single:
        yield UnpackedLog(group)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="binlogtool-unpacked-") as directory:
        yield _unpack_file(group, directory) if is_single else _unpack_set(group, directory)


def _unpack_file(group: LogGroup, directory: str) -> UnpackedLog:
    target = os.path.join(directory, strip_compressed_suffix(base_name(group.path)))
    failure = _unpack_or_explain_failure(group.path, target)
    if failure is not None:
        return UnpackedLog(group, damaged={group.path: failure})
    return UnpackedLog(replace(group, path=target, names=(target,)), {target: group.path})


def _unpack_set(group: LogGroup, directory: str) -> UnpackedLog:
    unpacked, damaged = dict[str, str](), dict[str, str]()
    for name in group.compressed:
        target = os.path.join(directory, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if (failure := _unpack_or_explain_failure(group.member_path(name), target)) is None:
            unpacked[name] = target
        else:
            damaged[name] = failure
    if group.format is not None and group.format.reading.reads_siblings:
        for name in {*group.names} - {*group.compressed}:
            _copy(group.member_path(name), os.path.join(directory, name))
    stored_paths = {target: group.member_path(name) for name, target in unpacked.items()}
    return UnpackedLog(replace(group, compressed={**group.compressed, **unpacked}), stored_paths, damaged)


def _unpack_or_explain_failure(path: str, target: str) -> str | None:
    """Unpack a file; return None, or why it could not be unpacked completely (then there is no target)."""
    source = open_source(path)
    try:
        with open(target, "xb") as file:
            offset, buffer = 0, bytearray(MIB)
            while size := source.read_at(offset, memoryview(buffer)):
                offset += size
                if buffer[:size] == _ZEROS[:size]:
                    file.seek(size, os.SEEK_CUR)
                else:
                    file.write(memoryview(buffer)[:size])
            file.truncate(offset)
        failure = source.find_change_or_cut()
    except OSError as error:
        raise _make_write_error(path, error) from error
    finally:
        source.close()
    if failure is None:
        return None
    os.unlink(target)
    return failure.message


def _copy(path: str, target: str) -> None:
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        raise _make_write_error(path, error) from error


def _make_write_error(path: str, error: OSError) -> InputOutputError:
    import tempfile

    text = f"{path}: cannot be unpacked in {tempfile.gettempdir()}: {error.strerror}"
    return InputOutputError(f"{text}; name another directory with TMPDIR, or unpack the file yourself")
