"""Where the durable part of a log ends, and the plan that would cut the rest. Nothing is written here."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.findings import Finding, Severity
from binlogtool.formats.base import Hints
from binlogtool.limits import MIB, Limits
from binlogtool.log.source import FileSource
from binlogtool.recovery.plan import FilePlan, Plan
from binlogtool.recovery.report import FileReport
from binlogtool.recovery.verify import verify_paths

_CUTTABLE = ("torn-tail", "zero-tail", "preallocated-tail", "garbage-tail")
_BLOCKING = ("valid-after-damage", "gap-in-sequence")


def plan_truncate(
    path: str | os.PathLike[str], *, format: str, limits: Limits, backend: str, hints: Hints | None = None
) -> Plan:
    """See `binlogtool.plan_truncate`.

    Raises:
        UsageError: standard input was named. UnknownFormatError, InputOutputError.
    """
    name = os.fspath(path)
    if name == "-":
        raise UsageError("standard input cannot be repaired; name a file or a directory")
    report = verify_paths(
        [name],
        format=format,
        depth="set",
        limits=limits,
        backend=backend,
        live=False,
        expect_closed=False,
        hints=hints,
    )
    for failure in report.failures:
        raise _raised(failure.message, failure.exit_code)
    files = tuple(_file_plan(one) for one in report.files)
    reasons = [reason for one, plan in zip(report.files, files, strict=True) for reason in _refusals(one, plan)]
    reasons += [
        f"{one.path}: {f.id}: {f.message}" for one in report.sets for f in one.findings if f.severity is Severity.ERROR
    ]
    return Plan(report.files[0].format, bool(reasons), tuple(reasons), files)


def _raised(message: str, exit_code: int) -> Exception:
    from binlogtool import errors

    kinds = (errors.UnknownFormatError, errors.RefusedError, errors.LimitError)
    return next((kind(message) for kind in kinds if kind.exit_code == exit_code), InputOutputError(message))


def _file_plan(report: FileReport) -> FilePlan:
    end = report.durable_end
    keep = report.size if end is None else _keep(report, end)
    cut = report.size - keep
    kept_hash, cut_hash = _hashes(report.path, keep, report.size) if cut else (None, None)
    valid = sum(f.facts.get("records", 0) for f in report.findings if f.id == "valid-after-damage")
    proof: dict[str, Any] = {
        "records": report.records,
        "last_seq": report.last_seq,
        "durable_end": end,
        "behind": [_brief(f) for f in report.findings if end is not None and (f.offset or 0) >= end],
    }
    return FilePlan(
        report.path,
        report.size,
        "truncate" if cut else "none",
        end,
        cut,
        valid if cut else 0,
        proof,
        kept_hash,
        cut_hash,
    )


def _keep(report: FileReport, end: int) -> int:
    """The bytes to keep: up to the durable end, or everything when the end mark stands right behind it."""
    closed_whole = report.closed and not any(f.id in _CUTTABLE or f.severity is Severity.ERROR for f in report.findings)
    nothing_behind = all(f.id not in (*_CUTTABLE, "damaged-range", "checksum-mismatch") for f in report.findings)
    return report.size if closed_whole or nothing_behind else end


def _refusals(report: FileReport, plan: FilePlan) -> list[str]:
    """Why this file must not be cut as planned."""
    reasons = []
    if plan.durable_end is None:
        reasons.append(f"{report.path}: the header cannot be read; no durable end can be given")
    if not plan.cut_bytes:
        return reasons
    for found in report.findings:
        if found.severity is not Severity.ERROR:
            continue
        if found.id in _BLOCKING:
            reasons.append(f"{report.path}: {found.id}: {found.message}; cutting would discard them")
        elif found.id not in (*_CUTTABLE, "damaged-range"):
            reasons.append(f"{report.path}: {found.id} at {found.offset or 0:#x}: {found.message}")
    return reasons


def _brief(found: Finding) -> dict[str, Any]:
    return {"id": found.id, "offset": found.offset, "length": found.length, "message": found.message}


def _hashes(path: str, keep: int, size: int) -> tuple[str, str]:
    """SHA-256 of the part to keep and of the part to cut."""
    source = FileSource(os.path.realpath(path))
    try:
        return _hash(source, 0, keep), _hash(source, keep, size)
    finally:
        source.close()


def _hash(source: FileSource, start: int, end: int) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(MIB))
    while start < end:
        got = source.read_at(start, buffer[: min(MIB, end - start)])
        if not got:
            raise InputOutputError(f"{source.name}: became shorter while it was read")
        digest.update(buffer[:got])
        start += got
    return digest.hexdigest()
