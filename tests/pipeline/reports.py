"""Reports as they are printed."""

from __future__ import annotations

import json

from binlogtool.report.verify_and_plan_text import verify_report_to_json
from binlogtool.verification.verify_report import Report


def as_json(report: Report) -> str:
    return json.dumps(verify_report_to_json(report, ""), default=repr)
