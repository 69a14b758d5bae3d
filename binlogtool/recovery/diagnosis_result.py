"""Results of `diagnose` (JSON shape binlogtool/diagnose/1)."""

from __future__ import annotations

import msgspec

from binlogtool.errors import LimitError
from binlogtool.findings import Finding, Severity
from binlogtool.recovery.plan import RepairPlan
from binlogtool.recovery.replay_result import ReplayResult
from binlogtool.recovery.report import PathFailure, Report

STARTS, REFUSES, OPEN, UNKNOWN = "yes", "no", "open", "unknown"
"""Does the server come up? OPEN: this log is not what makes it start. UNKNOWN: it could not be read to its end."""

SILENT_LOSS = "silent-loss"


def list_unchecked(replay: ReplayResult) -> tuple[str, ...]:
    """Return, in words, what a start of the server depends on and the replay could not check."""
    return tuple(replay.details.get("startup", {}).get("not_checked", ()))


class Diagnosis(msgspec.Struct, frozen=True):
    """The diagnosis of one place: a directory as its server reads it, or a single file.

    Attributes:
        plan: The truncation to the durable end, only where something is wrong.
        incomplete_reason: Why nothing, or not everything, could be determined.
        redo: The redo log that was found beside the log, and read with it.
        holder: The process that has the newest file open, most likely the server.
        unusable_files: Files that the owner of the directory cannot open, in words.
        unstable_reason: A running server kept changing the log and no problem showed up in every pass: what was not
            checked.
    """

    path: str
    report: Report
    replays: tuple[ReplayResult, ...] = ()
    plan: RepairPlan | None = None
    incomplete_reason: str | None = None
    redo: str | None = None
    holder: str | None = None
    unusable_files: tuple[str, ...] = ()
    unstable_reason: str | None = None

    @property
    def start(self) -> str:
        """The prediction for the server's start: STARTS, REFUSES, OPEN or UNKNOWN."""
        if self.unstable_reason is not None:
            return OPEN
        if any(one.starts is False and not one.is_encrypted for one in self.replays):
            return REFUSES
        if (
            self.incomplete_reason is not None
            or not self.replays
            or self.report.status == "incomplete"
            or self._has_unread
        ):
            return UNKNOWN
        return STARTS if any(one.starts for one in self.replays) else OPEN

    @property
    def _has_unread(self) -> bool:
        return any(one.is_encrypted or one.incomplete_reason is not None for one in self.replays)

    @property
    def losses(self) -> tuple[tuple[str, Finding], ...]:
        """(file, finding) of what the server would skip or drop without an error."""
        return tuple(item for one in self.replays for item in one.findings if item[1].id == SILENT_LOSS)

    @property
    def rejected_records(self) -> int:
        """Number of records that the server would reject."""
        return sum(one.decisions["rejected"] for one in self.replays)

    @property
    def is_healthy(self) -> bool:
        """True if everything was checked, nothing is wrong and nothing is lost. Torn ends that the server accepts are
        healthy.
        """
        if self.unstable_reason is not None:
            return True
        errors = any(found.severity is Severity.ERROR for found in self.report.findings)
        complete = self.incomplete_reason is None and self.report.status != "incomplete" and not self._has_unread
        complete = complete and not any(one.starts is None and list_unchecked(one) for one in self.replays)
        return (
            complete
            and not (errors or self.losses)
            and bool(self.replays)
            and all(one.is_clean for one in self.replays)
        )


class DiagnosisReport(msgspec.Struct, frozen=True):
    """The diagnoses of all logs that were found.

    Attributes:
        failures: Places that could not be read.
    """

    logs: tuple[Diagnosis, ...]
    failures: tuple[PathFailure, ...] = ()

    @property
    def exit_codes(self) -> list[int]:
        """The exit status of each log and of each failure."""
        codes = [LimitError.exit_code if one.start == UNKNOWN else int(not one.is_healthy) for one in self.logs]
        return codes + [failure.exit_code for failure in self.failures]
