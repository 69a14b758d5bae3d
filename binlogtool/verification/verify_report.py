"""Results of `verify` as values (JSON shape binlogtool/verify/1)."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from binlogtool import formats
from binlogtool.core.notify_progress_listener import (
    DESTROYED_LOG,
    UNREAD_LOGS,
    SkippedFile,
    is_compressed_log,
    strip_compressed_suffix,
)
from binlogtool.core.open_file import is_url
from binlogtool.core.resolve_paths import split_numbers
from binlogtool.errors import BinlogtoolError, InputOutputError, LimitError, RefusedError, UnknownFormatError
from binlogtool.findings import ENCRYPTED, UNCHECKED_IDS, Finding, Severity, make_finding

# --- Sequences of very many structs ---

S = TypeVar("S", bound=msgspec.Struct)


class CompactList(Sequence[S], Generic[S]):
    """Immutable sequence of structs in little memory; subclasses define the struct, and which of them are packed."""

    __slots__ = ("_kept",)
    struct: type[S]

    def __init__(self, values: Iterable[S | bytes] = ()) -> None:
        self._kept = tuple(map(self.pack_if_packable, values))

    @staticmethod
    @abstractmethod
    def is_packable(value: S, /) -> bool:
        """Return True for structs of which there may be very many."""

    @classmethod
    def pack_if_packable(cls, value: S | bytes) -> S | bytes:
        """Return the value as it is stored: packed, to a third of its memory, or unchanged."""
        if isinstance(value, bytes) or not cls.is_packable(value):
            return value
        try:
            return msgspec.msgpack.encode(value, enc_hook=dict)  # a mapping that is not a dictionary
        except (TypeError, ValueError, OverflowError):  # details that JSON cannot express
            return value

    @classmethod
    def unpack(cls, packed_value: S | bytes) -> S:
        """Return the struct of a stored value."""
        return (
            msgspec.msgpack.decode(packed_value, type=cls.struct) if isinstance(packed_value, bytes) else packed_value
        )

    @property
    def packed_values(self) -> Sequence[S | bytes]:
        """The values as they are stored."""
        return self._kept

    @overload
    def __getitem__(self, index: int) -> S: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[S, ...]: ...

    def __getitem__(self, index: int | slice) -> S | tuple[S, ...]:
        return (
            tuple(map(self.unpack, self._kept[index])) if isinstance(index, slice) else self.unpack(self._kept[index])
        )

    def __iter__(self) -> Iterator[S]:
        return map(self.unpack, self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._kept)

    def __repr__(self) -> str:
        return repr(tuple(self))


# --- Results of `verify` (JSON shape binlogtool/verify/1) ---

BYTE_CLASSES = ("header", "record", "padding", "preallocated", "torn_tail", "damaged", "unknown")


class FileReport(msgspec.Struct, frozen=True, array_like=True):
    """Report on one file.

    Attributes:
        bytes: Number of bytes in each class of BYTE_CLASSES; their sum is `size`.
        details: Additional, format-specific JSON values.
    """

    path: str
    format: str
    variant: str
    size: int
    records: int | None
    record_types: Mapping[str, int]
    transactions: int
    durable_end: int | None
    closed: bool | None
    bytes: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    first_seq: int | None = None
    last_seq: int | None = None
    seconds: float = 0.0
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_encrypted(self) -> bool:
        """True if the log is encrypted and its key was not given; then its content was not checked."""
        return any(found.id == ENCRYPTED for found in self.findings)

    @property
    def is_unchecked(self) -> bool:
        """True if content was not checked: the log is encrypted without its key, or content is beyond a limit."""
        return any(found.id in UNCHECKED_IDS for found in self.findings)


PackableReport = FileReport | bytes
"""Report on one file, packed or not."""


class FileReports(CompactList[FileReport]):
    """Reports on many files, in the order of the files."""

    __slots__ = ()
    struct = FileReport

    @staticmethod
    def is_packable(value: FileReport, /) -> bool:
        """Return True for reports without findings."""
        return not value.findings


class SetReport(msgspec.Struct, frozen=True):
    """Report on a directory (or several files of one log) as one log set."""

    path: str
    format: str
    members: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


class PathFailure(msgspec.Struct, frozen=True):
    """Path that could not be read or recognised, with the resulting exit status."""

    path: str
    message: str
    exit_code: int


def make_exception_of_failure(failure: PathFailure) -> Exception:
    """Return the exception for a failure, for cases in which the work cannot continue."""
    message = failure.message if failure.path in failure.message else f"{failure.path}: {failure.message}"
    kinds = (UnknownFormatError, RefusedError, LimitError)
    return next((kind(message) for kind in kinds if kind.exit_code == failure.exit_code), InputOutputError(message))


COMPRESSED_NOT_READ = "not checked: the file is compressed; unpack it, or name the file itself"


class SkippedFiles(msgspec.Struct, frozen=True):
    """Files of a directory that are not logs."""

    path: str
    files: tuple[SkippedFile, ...]

    @property
    def compressed_paths(self) -> list[str]:
        """Paths of compressed files with names of log files."""
        return [os.path.join(self.path, one.name) for one in self.files if is_compressed_log(one)]

    @property
    def destroyed_logs(self) -> tuple[PathFailure, ...]:
        """One failure for each file that only its name shows to be a log."""
        return tuple(one for one in self.failures if one.exit_code == UNREAD_LOGS[DESTROYED_LOG][0])

    @property
    def failures(self) -> tuple[PathFailure, ...]:
        """One failure for each file that is, or was, part of a log."""
        unread = [
            (os.path.join(self.path, one.name), *UNREAD_LOGS[one.kind]) for one in self.files if one.kind in UNREAD_LOGS
        ]
        return (
            *(PathFailure(one, COMPRESSED_NOT_READ, 6) for one in self.compressed_paths),
            *(PathFailure(path, text, status) for path, status, text in unread),
        )


class Report(msgspec.Struct, frozen=True):
    """Report on all files and log sets of one call.

    Attributes:
        failures: Paths that could not be read or recognised.
        incomplete: True if a limit ended the work early.
        skipped: Files of directories that are not logs.
        suppressed: Option (`ignore`, `baseline`) -> number of findings that it left out.
    """

    files: Sequence[FileReport]
    sets: tuple[SetReport, ...]
    failures: tuple[PathFailure, ...] = ()
    incomplete: bool = False
    skipped: tuple[SkippedFiles, ...] = ()
    suppressed: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those about files first."""
        files = tuple(one for report in self.files for one in report.findings)
        return files + tuple(one for report in self.sets for one in report.findings)

    def count_findings(self, severity: Severity) -> int:
        """Return the number of findings of exactly this severity."""
        return sum(f.severity is severity for f in self.findings)

    @property
    def status(self) -> str:
        """The JSON member `status`: clean, findings or incomplete."""
        if self.incomplete or self.failures or any(one.is_unchecked for one in self.files):
            return "incomplete"
        return "findings" if self.findings else "clean"


def replace_findings(report: Report, select: Callable[[str, tuple[Finding, ...]], tuple[Finding, ...]]) -> Report:
    """Return the report with other findings. select: (path of a file or set, its findings) -> the findings."""
    files = tuple(replace(one, findings=select(one.path, one.findings)) for one in report.files)
    sets = tuple(replace(one, findings=select(one.path, one.findings)) for one in report.sets)
    return replace(report, files=files, sets=sets)


def get_packed_reports(files: Sequence[FileReport]) -> Iterable[PackableReport]:
    """Return the reports as they are stored, packed where possible."""
    return files.packed_values if isinstance(files, FileReports) else files


def merge_reports(parts: Iterable[Report]) -> Report:
    """Merge reports into one report, in order."""
    all_ = list(parts)
    return Report(
        FileReports(kept for part in all_ for kept in get_packed_reports(part.files)),
        tuple(set_ for part in all_ for set_ in part.sets),
        tuple(failure for part in all_ for failure in part.failures),
        any(part.incomplete for part in all_),
        tuple(left for part in all_ for left in part.skipped),
    )


def report_skipped_files(path: str, files: Sequence[SkippedFile]) -> Report:
    """Return a report about the files of a directory that are not logs.

    Those that are, or were, part of a log count as failures, because they were not read.
    """
    if not files:
        return Report((), ())
    skipped = SkippedFiles(path, tuple(files))
    return Report((), (), skipped.failures, skipped=(skipped,))


def report_failure(path: str, error: BinlogtoolError) -> Report:
    """Return a report about a path that could not be read."""
    return Report((), (), (PathFailure(path, str(error), error.exit_code),))


# --- Files that an earlier run recorded ---


def add_findings_for_unpurged_missing_files(report: Report, recorded_paths: Iterable[str]) -> tuple[Report, list[str]]:
    """Return the report with findings about recorded files that no longer exist, and the paths of those that a purge
    does not explain. recorded_paths: absolute paths, or URLs.
    """
    missing, lost_paths = _report_missing_files(recorded_paths)
    return replace(report, sets=_add_to_sets(report.sets, missing)), lost_paths


def _report_missing_files(recorded_paths: Iterable[str]) -> tuple[list[SetReport], list[str]]:
    """Return reports about recorded files that no longer exist, and the paths of those that a purge does not explain.

    A server purges the oldest files: those whose numbers are below all that exist. Every other one is lost.
    """
    names_by_directory: dict[str, list[str]] = {}
    for path in sorted(path for path in recorded_paths if not is_url(path)):
        names_by_directory.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    reports, lost_paths = list[SetReport](), list[str]()
    for directory, names in names_by_directory.items():
        try:
            present = {strip_compressed_suffix(name) for name in os.listdir(directory)}
        except FileNotFoundError:
            present = set()
        except (OSError, ValueError):
            continue
        missing = [name for name in names if strip_compressed_suffix(name) not in present]
        purged = [name for name in missing if _is_expected_to_vanish(strip_compressed_suffix(name), present)]
        lost = [name for name in missing if name not in purged]
        findings = [
            *_describe_missing(
                lost, Severity.ERROR, "copy them again; if they were removed on purpose, use a new FILE"
            ),
            *_describe_missing(purged, Severity.NOTE, "the server removes its oldest files"),
        ]
        if findings:
            format_name = next((one for name in names for one in formats.find_by_file_name(name)), "")
            reports.append(SetReport(directory, format_name, (), tuple(findings)))
            lost_paths += [os.path.join(directory, name) for name in lost]
    return reports, lost_paths


def _is_expected_to_vanish(name: str, present_names: Iterable[str]) -> bool:
    """Return True for a file that a server removes: the oldest of a kind, a temporary or state file, a vinyl run."""
    kind, numbers = split_numbers(name)
    if name.endswith((".state", ".inprogress", ".run")) or kind == "#.index":
        return True
    present_numbers = [other for other_kind, other in map(split_numbers, present_names) if other_kind == kind]
    return bool(present_numbers) and numbers < min(present_numbers)


_MAX_LISTED_NAMES = 3


def _describe_missing(names: Sequence[str], severity: Severity, advice: str) -> Iterator[Finding]:
    if names:
        listed = ", ".join(names[:_MAX_LISTED_NAMES])
        more = f" and {len(names) - _MAX_LISTED_NAMES:,} more" if len(names) > _MAX_LISTED_NAMES else ""
        text = f"recorded by an earlier run (--state), now missing: {listed}{more}; {advice}"
        yield make_finding("missing-member", None, 0, text, severity=severity, files=tuple(names))


def _add_to_sets(sets: Sequence[SetReport], added: Sequence[SetReport]) -> tuple[SetReport, ...]:
    """Return the reports about sets with more findings; those about other directories are reports of their own."""
    by_directory = {os.path.abspath(one.path): one for one in added}
    merged = []
    for one in sets:
        more = by_directory.pop(os.path.abspath(one.path), None)
        merged.append(one if more is None else replace(one, findings=(*one.findings, *more.findings)))
    return (*merged, *by_directory.values())
