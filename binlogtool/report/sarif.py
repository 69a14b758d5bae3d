"""SARIF 2.1.0: `ruleId` is the finding id, `region` counts bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from binlogtool.findings import EXPLANATIONS, Finding
from binlogtool.log.plain import text_bytes
from binlogtool.recovery.report import Report
from binlogtool.render.escape import escape
from binlogtool.report.json import STYLE
from binlogtool.report.policy import fingerprint, located

MOST_RESULTS = 5000
"""More results of one upload are cut by the best-known reader of such files; repeated findings are grouped before."""

_PER_GROUP = 20
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report, version: str) -> dict[str, Any]:
    """Return the report as a SARIF log."""
    found = located(report)
    used = sorted({f.id for _, f in found})
    index = {id_: i for i, id_ in enumerate(used)}
    results = [_result(path, f, index) for path, f in found]
    if len(results) > MOST_RESULTS:
        results = list(_grouped(found, index))[:MOST_RESULTS]
    failures = [_notification(f.path, f.message) for f in report.failures]
    run = {
        "tool": {"driver": {"name": "binlogtool", "version": version, "rules": [_rule(id_) for id_ in used]}},
        "invocations": [{"executionSuccessful": not report.incomplete and not failures,
                         "toolExecutionNotifications": failures}],
        "artifacts": [{"location": {"uri": uri(f.path)}, "length": f.size} for f in report.files],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }  # fmt: skip
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def uri(path: str) -> str:
    """Return a path as a URI reference; relative paths stay relative."""
    data = text_bytes(path)
    return f"file://{quote(data)}" if Path(path).is_absolute() else quote(data)


def _rule(id_: str) -> dict[str, Any]:
    known = EXPLANATIONS[id_]
    text = f"{known.meaning} Causes: {known.causes} What to do: {known.action}"
    return {
        "id": id_,
        "shortDescription": {"text": known.meaning},
        "fullDescription": {"text": f"{known.meaning} {known.causes}"},
        "help": {"text": text},
        "defaultConfiguration": {"level": known.severity.label},
    }


def _result(path: str, finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    region = {"startLine": 1}
    if finding.offset is not None:
        region |= {"byteOffset": finding.offset, "byteLength": finding.length}
    return {
        "ruleId": finding.id,
        "ruleIndex": index[finding.id],
        "level": finding.severity.label,
        "message": {"text": escape(finding.message)},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(path)}, "region": region}}],
        "partialFingerprints": {"binlogtool/v1": fingerprint(path, finding)},
        "properties": {"facts": STYLE.plain(dict(finding.facts)), "record": finding.record},
    }


def _grouped(found: list[tuple[str, Finding]], index: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the first findings of each kind of each file; the last one says how many more there are."""
    total, seen = Counter((path, f.id) for path, f in found), Counter[tuple[str, str]]()
    for path, f in sorted(found, key=lambda item: -item[1].severity):
        kind = (path, f.id)
        seen[kind] += 1
        if seen[kind] < _PER_GROUP or total[kind] == seen[kind] == _PER_GROUP:
            yield _result(path, f, index)
        elif seen[kind] == _PER_GROUP:
            result = _result(path, f, index)
            result["message"]["text"] += f" (and {total[kind] - _PER_GROUP:,} more findings {f.id} in this file)"
            result["occurrenceCount"] = total[kind] - _PER_GROUP + 1
            yield result


def _notification(path: str, message: str) -> dict[str, Any]:
    where = {"physicalLocation": {"artifactLocation": {"uri": uri(path)}}}
    return {"level": "error", "message": {"text": escape(message)}, "locations": [where]}
