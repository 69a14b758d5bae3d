"""Reports as they are printed."""

from __future__ import annotations

from binlogtool.report.verify_and_plan_text import encode_verify_report
from binlogtool.verification.verify_report import Report


def as_json(report: Report) -> str:
    return b"".join(encode_verify_report(report, "")).decode()
