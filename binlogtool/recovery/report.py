"""Results of `verify` (JSON shape binlogtool/verify/1)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool import results
from binlogtool.errors import BinlogtoolError
from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.log.left import Left, is_packed_log
from binlogtool.recovery import packing

BYTE_CLASSES = ("header", "record", "padding", "preallocated", "torn_tail", "damaged", "unknown")


class FileReport(msgspec.Struct, frozen=True):
    """The report on one file.

    Attributes:
        bytes: Bytes of every class of BYTE_CLASSES; they sum to `size`.
        details: Additional, format-specific JSON.
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
    def encrypted(self) -> bool:
        """True if the log is encrypted and its key was not given; then its content was not checked."""
        return any(found.id == ENCRYPTED for found in self.findings)


Kept = FileReport | bytes
"""A report on one file, as it is or packed."""

_BYTES, _FINDINGS = map(FileReport.__struct_fields__.index, ("bytes", "findings"))


def packed(report: Kept) -> Kept:
    """Pack a report without findings, to a third of its memory; return any other unchanged."""
    if isinstance(report, bytes) or report.findings:
        return report
    if tuple(report.bytes) != BYTE_CLASSES:
        return report
    return packing.packed(report, {_BYTES: tuple(report.bytes.values())}) or report


def unpacked(kept: Kept) -> FileReport:
    """Return the report that `pack_report` packed."""
    if not isinstance(kept, bytes):
        return kept
    values = msgspec.msgpack.decode(kept)
    values[_BYTES], values[_FINDINGS] = dict(zip(BYTE_CLASSES, values[_BYTES], strict=True)), ()
    return FileReport(*values)


class FileReports(packing.Many[FileReport]):
    """The reports on many files, in their order."""

    __slots__ = ()
    pack = staticmethod(packed)
    unpack = staticmethod(unpacked)


class SetReport(msgspec.Struct, frozen=True):
    """The report on a directory (or several files of one log) as one log set."""

    path: str
    format: str
    members: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """A path that could not be read or recognised, with the exit status that it causes."""

    path: str
    message: str
    exit_code: int


UNREAD = "not checked: it is compressed; unpack it, or name it by itself"


class LeftOut(msgspec.Struct, frozen=True):
    """The files of a directory that are not logs."""

    path: str
    files: tuple[Left, ...]

    @property
    def unread(self) -> list[str]:
        """Paths of compressed files that are named like files of a log."""
        return [os.path.join(self.path, one.name) for one in self.files if is_packed_log(one)]


class Report(msgspec.Struct, frozen=True):
    """The report on all files and log sets of one call.

    Attributes:
        failures: Paths that could not be read or recognised.
        incomplete: A limit ended the work early.
        skipped: Files of directories that are not logs.
        suppressed: Number of findings that were left out, by the option that did so (`ignore`, `baseline`).
    """

    files: Sequence[FileReport]
    sets: tuple[SetReport, ...]
    failures: tuple[Failure, ...] = ()
    incomplete: bool = False
    left: tuple[LeftOut, ...] = ()
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those of files first."""
        files = tuple(one for report in self.files for one in report.findings)
        return files + tuple(one for report in self.sets for one in report.findings)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of exactly this severity."""
        return sum(f.severity is severity for f in self.findings)

    @property
    def status(self) -> str:
        """clean, findings or incomplete (JSON member `status`)."""
        if self.incomplete or self.failures or any(one.encrypted for one in self.files):
            return "incomplete"
        return "findings" if self.findings else "clean"

    def to_json(self) -> bytes:
        """Return `verify -O json` (binlogtool/verify/1)."""
        return results.report_as(self, "json")

    def to_junit(self, *, fail_on: Severity | None = Severity.ERROR) -> bytes:
        """Return JUnit XML, for CI.

        Args:
            fail_on: The least severity that is a failure; None = none is.
        """
        return results.report_as(self, "junit", fail_on=fail_on)

    def to_sarif(self) -> bytes:
        """Return SARIF 2.1.0, for code scanning."""
        return results.report_as(self, "sarif")

    def to_gitlab(self) -> bytes:
        """Return GitLab's code quality JSON."""
        return results.report_as(self, "gitlab")

    def to_markdown(self) -> bytes:
        """Return Markdown, for a ticket or a pull request."""
        return results.report_as(self, "markdown")

    def to_html(self, **reading: Any) -> bytes:
        """Return an HTML page; the files are read once more for it.

        Args:
            read_options: As for `binlogtool.report_as`.
        """
        return results.report_as(self, "html", **reading)


def kept_of(files: Sequence[FileReport]) -> Iterable[Kept]:
    """Return the reports packed, where they are kept so."""
    return files.kept if isinstance(files, FileReports) else files


def joined(parts: Iterable[Report]) -> Report:
    """Merge reports into one, in their order."""
    all_ = list(parts)
    return Report(
        FileReports(kept for part in all_ for kept in kept_of(part.files)),
        tuple(set_ for part in all_ for set_ in part.sets),
        tuple(failure for part in all_ for failure in part.failures),
        any(part.incomplete for part in all_),
        tuple(left for part in all_ for left in part.left),
    )


def left_of(path: str, left: Sequence[Left]) -> Report:
    """Report the files of a directory that are not logs; compressed log files count as failures, because they were
    not read.
    """
    if not left:
        return Report((), ())
    found = LeftOut(path, tuple(left))
    return Report((), (), tuple(Failure(one, UNREAD, 6) for one in found.unread), left=(found,))


def failed(path: str, error: BinlogtoolError) -> Report:
    """Report a path that could not be read."""
    return Report((), (), (Failure(path, str(error), error.exit_code),))
