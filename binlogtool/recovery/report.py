"""What `verify` says, as values (JSON shape binlogtool/verify/1, cli.md 6.19)."""

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
    """One file. `bytes` has every class of BYTE_CLASSES and sums to `size`. details: extra, format-specific JSON."""

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
        """Is the log encrypted without its key? Then what is in it was not checked."""
        return any(found.id == ENCRYPTED for found in self.findings)


Kept = FileReport | bytes
"""A report on one file, as it is or packed."""

_BYTES, _FINDINGS = map(FileReport.__struct_fields__.index, ("bytes", "findings"))


def packed(report: Kept) -> Kept:
    """What is kept of a report on one of very many files: a third of its memory, if nothing was found in the file."""
    if isinstance(report, bytes) or report.findings:
        return report
    if tuple(report.bytes) != BYTE_CLASSES:
        return report
    return packing.packed(report, {_BYTES: tuple(report.bytes.values())}) or report


def unpacked(kept: Kept) -> FileReport:
    """The report itself."""
    if not isinstance(kept, bytes):
        return kept
    values = msgspec.msgpack.decode(kept)
    values[_BYTES], values[_FINDINGS] = dict(zip(BYTE_CLASSES, values[_BYTES], strict=True)), ()
    return FileReport(*values)


class FileReports(packing.Many[FileReport]):
    """Reports on files, in their order."""

    __slots__ = ()
    pack = staticmethod(packed)
    unpack = staticmethod(unpacked)


class SetReport(msgspec.Struct, frozen=True):
    """A directory (or several files of one log) seen as one log."""

    path: str
    format: str
    members: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """A path that could not be worked on at all; `exit_code` as in cli.md 6.11."""

    path: str
    message: str
    exit_code: int


UNREAD = "not checked: it is compressed; unpack it, or name it by itself"


class LeftOut(msgspec.Struct, frozen=True):
    """The files of a directory that are no logs."""

    path: str
    files: tuple[Left, ...]

    @property
    def unread(self) -> list[str]:
        """The paths of compressed files that are named like files of a log."""
        return [os.path.join(self.path, one.name) for one in self.files if is_packed_log(one)]


class Report(msgspec.Struct, frozen=True):
    """All files and sets of one call. failures: paths that could not be read or recognised. left: what is no log.
    left_out: how many findings are not in it as the user wished, by the option that said so (`ignore`, `baseline`)."""

    files: Sequence[FileReport]
    sets: tuple[SetReport, ...]
    failures: tuple[Failure, ...] = ()
    incomplete: bool = False
    left: tuple[LeftOut, ...] = ()
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, files first."""
        files = tuple(one for report in self.files for one in report.findings)
        return files + tuple(one for report in self.sets for one in report.findings)

    def count(self, severity: Severity) -> int:
        """How many findings have exactly this severity."""
        return sum(f.severity is severity for f in self.findings)

    @property
    def status(self) -> str:
        """clean, findings or incomplete (JSON member `status`)."""
        if self.incomplete or self.failures or any(one.encrypted for one in self.files):
            return "incomplete"
        return "findings" if self.findings else "clean"

    def to_json(self) -> bytes:
        """`verify -O json` (binlogtool/verify/1)."""
        return results.report_as(self, "json")

    def to_junit(self, *, fail_on: Severity | None = Severity.ERROR) -> bytes:
        """JUnit XML, for CI. fail_on: the least severity that is a failure; None = none is."""
        return results.report_as(self, "junit", fail_on=fail_on)

    def to_sarif(self) -> bytes:
        """SARIF 2.1.0, for code scanning."""
        return results.report_as(self, "sarif")

    def to_gitlab(self) -> bytes:
        """GitLab's code quality JSON."""
        return results.report_as(self, "gitlab")

    def to_markdown(self) -> bytes:
        """For a ticket or a pull request."""
        return results.report_as(self, "markdown")

    def to_html(self, **reading: Any) -> bytes:
        """One page for people, for which the files are read once more. reading: as for `binlogtool.report_as`."""
        return results.report_as(self, "html", **reading)


def kept_of(files: Sequence[FileReport]) -> Iterable[Kept]:
    """Reports as they are kept."""
    return files.kept if isinstance(files, FileReports) else files


def joined(parts: Iterable[Report]) -> Report:
    """One report about all that the parts are about, in their order."""
    all_ = list(parts)
    return Report(
        FileReports(kept for part in all_ for kept in kept_of(part.files)),
        tuple(set_ for part in all_ for set_ in part.sets),
        tuple(failure for part in all_ for failure in part.failures),
        any(part.incomplete for part in all_),
        tuple(left for part in all_ for left in part.left),
    )


def left_of(path: str, left: Sequence[Left]) -> Report:
    """The report on what is no log in a directory; compressed files of a log are part of it, and were not read."""
    if not left:
        return Report((), ())
    found = LeftOut(path, tuple(left))
    return Report((), (), tuple(Failure(one, UNREAD, 6) for one in found.unread), left=(found,))


def failed(path: str, error: BinlogtoolError) -> Report:
    """The report on a path that could not be worked on."""
    return Report((), (), (Failure(path, str(error), error.exit_code),))
