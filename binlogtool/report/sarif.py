"""SARIF 2.1.0: `ruleId` is the finding id, `region` counts bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from binlogtool.findings import EXPLANATIONS, Finding
from binlogtool.log.plain import encode_text
from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.json import STYLE
from binlogtool.report.policy import compute_fingerprint, list_located_findings

MAX_RESULTS = 5000
"""More results of one upload are cut by the best-known reader of such files; repeated findings are grouped before."""

_MAX_PER_GROUP = 20
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def report_to_sarif(report: Report, version: str) -> dict[str, Any]:
    """Return the report as a SARIF log."""
    findings = list_located_findings(report)
    used = sorted({f.id for _, f in findings})
    index = {id_: i for i, id_ in enumerate(used)}
    results = [_make_result(path, f, index) for path, f in findings]
    if len(results) > MAX_RESULTS:
        results = list(_group_results(findings, index))[:MAX_RESULTS]
    failures = [_make_notification(f.path, f.message) for f in report.failures]
    run = {
        "tool": {"driver": {"name": "binlogtool", "version": version, "rules": [_make_rule(id_) for id_ in used]}},
        "invocations": [{"executionSuccessful": not report.incomplete and not failures,
                         "toolExecutionNotifications": failures}],
        "artifacts": [{"location": {"uri": path_to_uri(f.path)}, "length": f.size} for f in report.files],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }  # fmt: skip
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def path_to_uri(path: str) -> str:
    """Return a path as a URI reference; relative paths stay relative."""
    data = encode_text(path)
    return f"file://{quote(data)}" if Path(path).is_absolute() else quote(data)


def _make_rule(id_: str) -> dict[str, Any]:
    explanation = EXPLANATIONS[id_]
    text = f"{explanation.meaning} Causes: {explanation.causes} What to do: {explanation.action}"
    return {
        "id": id_,
        "shortDescription": {"text": explanation.meaning},
        "fullDescription": {"text": f"{explanation.meaning} {explanation.causes}"},
        "help": {"text": text},
        "defaultConfiguration": {"level": explanation.severity.label},
    }


def _make_result(path: str, finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    region = {"startLine": 1}
    if finding.offset is not None:
        region |= {"byteOffset": finding.offset, "byteLength": finding.length}
    return {
        "ruleId": finding.id,
        "ruleIndex": index[finding.id],
        "level": finding.severity.label,
        "message": {"text": escape(finding.message)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": path_to_uri(path)}, "region": region}}],
        "partialFingerprints": {"binlogtool/v1": compute_fingerprint(path, finding)},
        "properties": {"facts": STYLE.to_json_value(dict(finding.facts)), "record": finding.record},
    }


def _group_results(findings: list[tuple[str, Finding]], index: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the first findings of each kind of each file; the last one says how many more there are."""
    total, seen = Counter((path, f.id) for path, f in findings), Counter[tuple[str, str]]()
    for path, finding in sorted(findings, key=lambda item: -item[1].severity):
        kind = (path, finding.id)
        seen[kind] += 1
        if seen[kind] < _MAX_PER_GROUP or total[kind] == seen[kind] == _MAX_PER_GROUP:
            yield _make_result(path, finding, index)
        elif seen[kind] == _MAX_PER_GROUP:
            result = _make_result(path, finding, index)
            result["message"]["text"] += (
                f" (and {total[kind] - _MAX_PER_GROUP:,} more findings {finding.id} in this file)"
            )
            result["occurrenceCount"] = total[kind] - _MAX_PER_GROUP + 1
            yield result


def _make_notification(path: str, message: str) -> dict[str, Any]:
    where = {"physicalLocation": {"artifactLocation": {"uri": path_to_uri(path)}}}
    return {"level": "error", "message": {"text": escape(message)}, "locations": [where]}
