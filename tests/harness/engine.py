"""The product as the harness uses it: bytes in, report out, and what must hold for every report (goal R9)."""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from binlogtool.errors import UnknownFormatError
from binlogtool.findings import EXPLANATIONS, Finding, Severity
from binlogtool.format_api.format import Hints
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import KeyFileError
from binlogtool.verification.verify_logs import LogVerifyOptions
from binlogtool.verification.verify_report import BYTE_CLASSES, FileReport
from tests.verify_bytes import verify_bytes


class Opinion(NamedTuple):
    """What the product says about some bytes. records: 0 where the file is refused as a whole."""

    records: int
    durable_end: int | None
    findings: tuple[Finding, ...]
    account: tuple[tuple[str, int], ...] = ()
    closed: bool | None = None
    refused: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """The kinds of findings."""
        return frozenset(found.id for found in self.findings)

    @property
    def signature(self) -> frozenset[tuple[str, int, int | None, int, str]]:
        """Findings as comparable values, their words included."""
        return frozenset((f.id, int(f.severity), f.offset, f.length, f.message) for f in self.findings)

    def worst(self) -> Severity | None:
        """The gravest finding."""
        return max((found.severity for found in self.findings), default=None)


def opinion(
    format: str, name: str, data: bytes, backend: str = "auto", depth: str = "set", hints: Hints = Hints()
) -> Opinion:
    """Verifies bytes as the file `name` would be, and holds the report to its promises."""
    options = LogVerifyOptions(depth, backend=backend, hints=hints)
    try:
        report = verify_bytes(posixpath.basename(name), data, format=format, options=options)
    except (UnknownFormatError, KeyFileError):
        return Opinion(0, None, (), refused=True)
    account_holds(report, len(data))
    classes = tuple(sorted(report.bytes.items()))
    return Opinion(report.records, report.durable_end, report.findings, classes, report.closed)


def account_holds(report: FileReport, size: int) -> None:
    """Goal R9: every byte in exactly one class; and findings lie inside the file and have known ids."""
    assert report.size == size, report
    assert set(report.bytes) == set(BYTE_CLASSES), report.bytes
    assert all(count >= 0 for count in report.bytes.values()), report.bytes
    assert sum(report.bytes.values()) == size, (report.bytes, size)
    assert 0 <= (report.durable_end or 0) <= size, report
    for found in report.findings:
        assert found.id in EXPLANATIONS, found
        start = found.offset or 0
        assert 0 <= start <= start + found.length <= size, (found, size)
