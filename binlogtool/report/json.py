"""JSON shapes of `verify`, plans and `explain`, as plain values and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from binlogtool.findings import EXPLANATIONS, Finding, Severity
from binlogtool.log.body_json import finding_to_value
from binlogtool.log.jsonbytes import encode_json
from binlogtool.log.left import SkippedFile
from binlogtool.log.plain import JsonStyle, escape_unsafe
from binlogtool.recovery.plan import RepairPlan, RepairResult
from binlogtool.recovery.report import FileReport, PathFailure, Report, SetReport, SkippedFiles
from binlogtool.report.left import skipped_files_to_json

STYLE = JsonStyle()


def encode_document(value: Any, *, style: JsonStyle = STYLE, indent: int = 2) -> bytes:
    """Encode a value as one JSON document with a line end."""
    text = encode_json(style.to_json_value(value))
    return escape_unsafe(msgspec.json.format(text, indent=indent)) + b"\n"


def encode_line(value: Any, *, style: JsonStyle = STYLE) -> bytes:
    """Encode a value as one line of JSON."""
    return escape_unsafe(encode_json(style.to_json_value(value))) + b"\n"


def findings_to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the member `findings`."""
    return [finding_to_value(f) for f in findings]


def file_report_to_json(file: FileReport) -> dict[str, Any]:
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
        "findings": findings_to_json(file.findings),
        "first_seq": file.first_seq,
        "last_seq": file.last_seq,
        **({"encrypted": True} if file.is_encrypted else {}),
        **({"details": dict(file.details)} if file.details else {}),
    }


def set_report_to_json(set_report: SetReport) -> dict[str, Any]:
    """Return one member of `sets`."""
    return {
        "path": set_report.path,
        "format": set_report.format,
        "members": list(set_report.members),
        "findings": findings_to_json(set_report.findings),
    }


def failure_to_json(failure: PathFailure) -> dict[str, Any]:
    """Return one member of `failures`: a path that could not be read."""
    return {"path": failure.path, "message": failure.message, "exit_code": failure.exit_code}


def skipped_files_from_json(value: Mapping[str, Any]) -> SkippedFiles:
    """Reverse `skipped_files_to_json`."""
    return SkippedFiles(value["path"], tuple(SkippedFile(one["name"], one["kind"]) for one in value["files"]))


def encode_verify_report(report: Report, version: str) -> Iterator[bytes]:
    """Yield `verify -O json`, a piece for each file: all of them as plain values would take many times the memory."""
    before, _, after = encode_document(_make_verify_document(report, version, [])).partition(_NO_FILES)
    if not report.files:
        yield before + _NO_FILES + after
        return
    for number, file in enumerate(report.files):
        yield (b"," if number else before + b'\n  "files": [') + b"\n    "
        yield encode_document(file_report_to_json(file)).rstrip(b"\n").replace(b"\n", b"\n    ")
    yield b"\n  ]" + after


_NO_FILES = b'\n  "files": []'


def verify_report_to_json(report: Report, version: str) -> dict[str, Any]:
    """Return `verify -O json` (binlogtool/verify/1) as a value.

    `failures` is there only if a path could not be read, `not_logs` only if a directory has other files, too,
    `left_out` only if findings were left out.
    """
    return _make_verify_document(report, version, [file_report_to_json(f) for f in report.files])


def _make_verify_document(report: Report, version: str, files: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": "binlogtool/verify/1",
        "tool": {"name": "binlogtool", "version": version},
        "status": report.status,
        "files": files,
        "sets": [set_report_to_json(s) for s in report.sets],
        "summary": {
            "files": len(report.files),
            "bytes": sum(f.size for f in report.files),
            "records": sum(f.records or 0 for f in report.files),
            "findings": {s.label: report.count_findings(s) for s in sorted(Severity, reverse=True)},
            **({"left_out": dict(report.suppressed)} if report.suppressed else {}),
        },
        **({"failures": [failure_to_json(f) for f in report.failures]} if report.failures else {}),
        **({"not_logs": [skipped_files_to_json(one) for one in report.skipped]} if report.skipped else {}),
    }


def finding_from_json(value: Mapping[str, Any]) -> Finding:
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


def file_report_from_json(value: Mapping[str, Any]) -> FileReport:
    """Reverse `file_report_to_json`."""
    members = {name: value[name] for name in FileReport.__struct_fields__ if name in value}
    findings = tuple(finding_from_json(f) for f in value["findings"])
    return FileReport(**{**members, "findings": findings})


def set_report_from_json(value: Mapping[str, Any]) -> SetReport:
    """Reverse `set_report_to_json`."""
    findings = tuple(finding_from_json(f) for f in value["findings"])
    return SetReport(value["path"], value["format"], tuple(value["members"]), findings)


def plan_to_json(plan: RepairPlan, applied: RepairResult | None = None) -> dict[str, Any]:
    """Return `truncate-to-durable -O json` (binlogtool/plan/1) as a value.

    Args:
        applied: What was carried out of the plan.
    """
    not_logs = {"not_logs": [skipped_files_to_json(one) for one in plan.skipped]} if plan.skipped else {}
    if applied is None:
        return plan.as_value() | not_logs
    written = [dict(one._asdict()) for one in applied.files]
    value = {**plan.as_value(), **not_logs, "applied": True, "undo": applied.undo, "written": written}
    return value | ({"notes": [*plan.notes, *applied.notes]} if applied.notes else {})


def status_to_json(key: str) -> dict[str, str]:
    """Return one exit status of `explain -O json`; two numbers of the same meaning share an entry."""
    from binlogtool.report.statuses import STATUSES

    return {"status": key, **STATUSES[key]._asdict()}


def explanation_to_json(id_: str) -> dict[str, str]:
    """Return one finding of `explain -O json`."""
    explanation = EXPLANATIONS[id_]
    texts = {"meaning": explanation.meaning, "causes": explanation.causes, "action": explanation.action}
    return {"id": id_, "severity": explanation.severity.label, **texts}
