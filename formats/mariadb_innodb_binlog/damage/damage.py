"""Classify damage in terms of this format
(docs/spec/mariadb_innodb_binlog.md#validation).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.layouts import LogFileLayout
from binlogtool.formats.mariadb_innodb_binlog.records.context import IbbFileContext


def explain_damage(layout: LogFileLayout, data: memoryview, offset: int, problem: Finding) -> Finding:
    """Return the finding with a `diagnosis` in its facts."""
    context: IbbFileContext = layout.context
    if problem.id == "zero-tail":
        cause = "the file is held in reserve" if context.starts_with_zeros else "held in reserve"
        return _with_diagnosis(problem, "preallocated", f"{problem.message}: {cause}", "preallocated-tail")
    if problem.id == "torn-tail":
        if len(data) >= context.page_size:
            return _with_diagnosis(problem, "torn-page", problem.message)
        return _with_diagnosis(problem, "truncated-file", f"part of a page: {problem.message}")
    if problem.id == "checksum-mismatch" and not any(data[: context.page_size]):
        text = "hole: a page of zeros before other data: readers stop here and see nothing of what follows"
        return _with_diagnosis(problem, "hole", text)
    if problem.id == "checksum-mismatch":
        return _with_diagnosis(problem, "page-corrupt", problem.message)
    return problem


def _with_diagnosis(
    problem: Finding, diagnosis: str, text: str, finding_id: str | None = None, **facts: Any
) -> Finding:
    all_facts = MappingProxyType({**problem.facts, "diagnosis": diagnosis, **facts})
    return replace(problem, id=finding_id or problem.id, message=text, facts=all_facts)
