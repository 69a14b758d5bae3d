"""Classify damage in terms of this format
(docs/spec/mariadb-innodb-binlog.md#15-invariants-for-verify-and-diagnoses).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from binlogtool.findings import Finding
from binlogtool.formats.layouts import Layout
from binlogtool.formats.mariadb_innodb_binlog.records.context import FileContext


def explain_damage(layout: Layout, data: memoryview, offset: int, found: Finding) -> Finding:
    """Return the finding with a `diagnosis` in its facts."""
    context: FileContext = layout.context
    if found.id == "zero-tail":
        what = "the file is held in reserve" if context.empty else "held in reserve"
        return _with(found, "preallocated", f"{found.message}: {what}", "preallocated-tail")
    if found.id == "torn-tail":
        if len(data) >= context.page_size:
            return _with(found, "torn-page", found.message)
        return _with(found, "truncated-file", f"part of a page: {found.message}")
    if found.id == "checksum-mismatch" and not any(data[: context.page_size]):
        text = "hole: a page of zeros before other data: readers stop here and see nothing of what follows"
        return _with(found, "hole", text)
    if found.id == "checksum-mismatch":
        return _with(found, "page-corrupt", found.message)
    return found


def _with(found: Finding, diagnosis: str, text: str, id_: str | None = None, **facts: Any) -> Finding:
    known = MappingProxyType({**found.facts, "diagnosis": diagnosis, **facts})
    return replace(found, id=id_ or found.id, message=text, facts=known)
