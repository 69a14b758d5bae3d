"""JSON shapes of `verify`, plans and `explain`, as plain values and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import EXPLANATIONS, Finding, Severity
from binlogtool.log.body_json import finding_json
from binlogtool.log.jsonbytes import encoded
from binlogtool.log.left import Left
from binlogtool.log.plain import Style, safe_json
from binlogtool.recovery.plan import Applied, Plan
from binlogtool.recovery.report import Failure, FileReport, LeftOut, Report, SetReport
from binlogtool.report.left import left_json

STYLE = Style()


def document(value: Any, *, style: Style = STYLE, indent: int = 2) -> bytes:
    """Encode a value as one JSON document with a line end."""
    text = encoded(style.plain(value))
    return safe_json(msgspec.json.format(text, indent=indent)) + b"\n"


def line(value: Any, *, style: Style = STYLE) -> bytes:
    """Encode a value as one line of JSON."""
    return safe_json(encoded(style.plain(value))) + b"\n"


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the member `findings`."""
    return [finding_json(f) for f in findings]


def file_json(file: FileReport) -> dict[str, Any]:
    """Return one member of `files`. Further members (first_seq, last_seq, details) are additions to the shape."""
    return {
        "path": file.path,
        "format": file.format,
        "variant": file.variant,
        "size": file.size,
        "records": file.records,
        "record_types": dict(file.record_types),
        "transactions": file.transactions,
        "durable_end": file.durable_end,
        "closed": file.closed,
        "bytes": dict(file.bytes),
        "findings": findings_json(file.findings),
        "first_seq": file.first_seq,
        "last_seq": file.last_seq,
        **({"encrypted": True} if file.encrypted else {}),
        **({"details": dict(file.details)} if file.details else {}),
    }


def set_json(part: SetReport) -> dict[str, Any]:
    """Return one member of `sets`."""
    return {
        "path": part.path,
        "format": part.format,
        "members": list(part.members),
        "findings": findings_json(part.findings),
    }


def failure_json(failure: Failure) -> dict[str, Any]:
    """Return one member of `failures`: a path that could not be read."""
    return {"path": failure.path, "message": failure.message, "exit_code": failure.exit_code}


def left_from(value: Mapping[str, Any]) -> LeftOut:
    """Reverse `skipped_files_to_json`."""
    return LeftOut(value["path"], tuple(Left(one["name"], one["kind"]) for one in value["files"]))


def verify_document(report: Report, version: str) -> Iterator[bytes]:
    """Yield `verify -O json`, a piece for each file: all of them as plain values would take many times the memory."""
    before, _, after = document(_verify_json(report, version, [])).partition(_NO_FILES)
    if not report.files:
        yield before + _NO_FILES + after
        return
    for number, file in enumerate(report.files):
        yield (b"," if number else before + b'\n  "files": [') + b"\n    "
        yield document(file_json(file)).rstrip(b"\n").replace(b"\n", b"\n    ")
    yield b"\n  ]" + after


_NO_FILES = b'\n  "files": []'


def verify_json(report: Report, version: str) -> dict[str, Any]:
    """Return `verify -O json` (binlogtool/verify/1) as a value.

    `failures` is there only if a path could not be read, `not_logs` only if a directory has other files, too,
    `left_out`
    only if findings were left out.
    """
    return _verify_json(report, version, [file_json(f) for f in report.files])


def _verify_json(report: Report, version: str, files: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": "binlogtool/verify/1",
        "tool": {"name": "binlogtool", "version": version},
        "status": report.status,
        "files": files,
        "sets": [set_json(s) for s in report.sets],
        "summary": {
            "files": len(report.files),
            "bytes": sum(f.size for f in report.files),
            "records": sum(f.records or 0 for f in report.files),
            "findings": {s.label: report.count(s) for s in sorted(Severity, reverse=True)},
            **({"left_out": dict(report.left_out)} if report.left_out else {}),
        },
        **({"failures": [failure_json(f) for f in report.failures]} if report.failures else {}),
        **({"not_logs": [left_json(one) for one in report.left]} if report.left else {}),
    }


def finding_from(value: Mapping[str, Any]) -> Finding:
    """Reverse `finding_json`."""
    return Finding(
        str(value["id"]),
        Severity[str(value["severity"]).upper()],
        value["offset"],
        int(value["length"]),
        str(value["message"]),
        value["record"],
        dict(value["facts"]),
    )


def file_from(value: Mapping[str, Any]) -> FileReport:
    """Reverse `file_report_to_json`."""
    known = {name: value[name] for name in FileReport.__struct_fields__ if name in value}
    findings = tuple(finding_from(f) for f in value["findings"])
    return FileReport(**{**known, "findings": findings})


def set_from(value: Mapping[str, Any]) -> SetReport:
    """Reverse `set_report_to_json`."""
    findings = tuple(finding_from(f) for f in value["findings"])
    return SetReport(value["path"], value["format"], tuple(value["members"]), findings)


def plan_json(plan: Plan, done: Applied | None = None) -> dict[str, Any]:
    """Return `truncate-to-durable -O json` (binlogtool/plan/1) as a value.

    Args:
        applied: What was carried out of the plan.
    """
    left = {"not_logs": [left_json(one) for one in plan.left]} if plan.left else {}
    if done is None:
        return plan.as_value() | left
    written = [dict(one._asdict()) for one in done.files]
    value = {**plan.as_value(), **left, "applied": True, "undo": done.undo, "written": written}
    return value | ({"notes": [*plan.notes, *done.notes]} if done.notes else {})


def status_json(key: str) -> dict[str, str]:
    """Return one exit status of `explain -O json`; two numbers of the same meaning share an entry."""
    from binlogtool.report.statuses import STATUSES

    return {"status": key, **STATUSES[key]._asdict()}


def explanation_json(id_: str) -> dict[str, str]:
    """Return one finding of `explain -O json`."""
    known = EXPLANATIONS[id_]
    texts = {"meaning": known.meaning, "causes": known.causes, "action": known.action}
    return {"id": id_, "severity": known.severity.label, **texts}
