"""Count entries with and without a checksum, and find where the lack of one is suspicious.

Source: `docs/spec/drizzle.md#file-layout`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding


class ChecksumCounts(msgspec.Struct):
    """Counts over a file. Within one run of the server the option is on or off: a hole in a run is suspicious.

    Attributes:
        absent_from, absent_to: range from the first entry without a checksum to the end of the last one.
    """

    present: int = 0
    absent: int = 0
    suspicious: int = 0
    suspicious_at: int | None = None
    absent_from: int | None = None
    absent_to: int = 0
    _run_has_checksums: bool = False
    _last_has_checksum: bool = False
    _hole_count: int = 0
    _hole_start: int | None = None

    def add(self, has_checksum: bool, offset: int, end: int) -> None:
        """Count the entry at `[offset, end)`."""
        self._last_has_checksum = has_checksum
        if has_checksum:
            self.present += 1
            self._run_has_checksums = True
            if self._hole_count:
                self._confirm_hole()
            return
        self.absent += 1
        self.absent_to = end
        if self.absent_from is None:
            self.absent_from = offset
        if self._run_has_checksums:
            self._hole_count += 1
            self._hole_start = offset if self._hole_start is None else self._hole_start

    def _confirm_hole(self) -> None:
        """Count a hole as suspicious: a checksum follows entries without one, in the same run."""
        self.suspicious += self._hole_count
        self.suspicious_at = self._hole_start if self.suspicious_at is None else self.suspicious_at
        self._hole_count, self._hole_start = 0, None

    def start_run(self) -> None:
        """Start a new run of the server with the last entry: the option may have changed."""
        self._run_has_checksums = self._last_has_checksum
        self._hole_count, self._hole_start = 0, None

    def create_findings(self) -> list[Finding]:
        """Return at most one finding, about the whole file."""
        if self.absent_from is None:
            return []
        text = f"{self.absent:,} of {self.absent + self.present:,} entries have no checksum: changes go unnoticed"
        facts: dict[str, Any] = {"present": self.present, "absent": self.absent, "diagnosis": "no checksum"}
        if self.suspicious:
            text += f"; {self.suspicious:,} of them stand between entries that have one"
            facts |= {"suspicious": self.suspicious, "first_suspicious": self.suspicious_at or 0}
        severity = Severity.WARNING if self.suspicious else Severity.NOTE
        size = self.absent_to - self.absent_from
        return [make_finding("checksum-absent", self.absent_from, size, text, severity=severity, **facts)]
