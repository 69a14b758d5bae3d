"""Results of `diagnose` (JSON shape binlogtool/diagnose/1)."""

from __future__ import annotations

import msgspec

from binlogtool import results
from binlogtool.errors import LimitError
from binlogtool.findings import Finding, Severity
from binlogtool.recovery.plan import Plan
from binlogtool.recovery.replay_result import Replayed
from binlogtool.recovery.report import Failure, Report

STARTS, REFUSES, OPEN, UNKNOWN = "yes", "no", "open", "unknown"
"""Does the server come up? OPEN: this log is not what makes it start. UNKNOWN: it could not be read to its end."""

LOSS = "silent-loss"


def not_checked(one: Replayed) -> tuple[str, ...]:
    """Return, in words, what a start of the server depends on and the replay could not check."""
    return tuple(one.details.get("startup", {}).get("not_checked", ()))


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
    replays: tuple[Replayed, ...] = ()
    plan: Plan | None = None
    trouble: str | None = None
    redo: str | None = None
    holder: str | None = None
    unusable: tuple[str, ...] = ()
    unsettled: str | None = None

    @property
    def start(self) -> str:
        """The prediction for the server's start: STARTS, REFUSES, OPEN or UNKNOWN."""
        if self.unsettled is not None:
            return OPEN
        if any(one.starts is False and not one.encrypted for one in self.replays):
            return REFUSES
        if self.trouble is not None or not self.replays or self.report.status == "incomplete" or self._unread:
            return UNKNOWN
        return STARTS if any(one.starts for one in self.replays) else OPEN

    @property
    def _unread(self) -> bool:
        return any(one.encrypted or one.incomplete is not None for one in self.replays)

    @property
    def losses(self) -> tuple[tuple[str, Finding], ...]:
        """(file, finding) of what the server would skip or drop without an error."""
        return tuple(item for one in self.replays for item in one.findings if item[1].id == LOSS)

    @property
    def rejected(self) -> int:
        """Number of records that the server would reject."""
        return sum(one.decisions["rejected"] for one in self.replays)

    @property
    def well(self) -> bool:
        """True if everything was checked, nothing is wrong and nothing is lost. Torn ends that the server accepts are
        healthy.
        """
        if self.unsettled is not None:
            return True
        errors = any(found.severity is Severity.ERROR for found in self.report.findings)
        known = self.trouble is None and self.report.status != "incomplete" and not self._unread
        known = known and not any(one.starts is None and not_checked(one) for one in self.replays)
        return known and not (errors or self.losses) and bool(self.replays) and all(one.clean for one in self.replays)


class Diagnoses(msgspec.Struct, frozen=True):
    """The diagnoses of all logs that were found.

    Attributes:
        failures: Places that could not be read.
    """

    logs: tuple[Diagnosis, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def codes(self) -> list[int]:
        """The exit status of each log and of each failure."""
        told = [LimitError.exit_code if one.start == UNKNOWN else int(not one.well) for one in self.logs]
        return told + [failure.exit_code for failure in self.failures]

    def to_json(self) -> bytes:
        """Return `diagnose -O json` (binlogtool/diagnose/1)."""
        return results.diagnoses_as(self, "json")

    def to_markdown(self) -> bytes:
        """Return the diagnoses as Markdown, for a ticket."""
        return results.diagnoses_as(self, "markdown")
