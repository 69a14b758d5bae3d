"""Check runs, their indexes and the metadata log against each other (`docs/spec/tarantool.md#vinyl-files`)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.formats.judging import SetFinding
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.judge.vinyl import IndexFacts, RunFacts, RunPage, VylogFacts
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.judge.chain import TarantoolMember

_PARTNER = {FileKind.RUN: ".index", FileKind.INDEX: ".run"}


def validate_vinyl_files(files: Sequence[TarantoolMember], vylogs: Sequence[TarantoolMember]) -> Iterator[SetFinding]:
    """Yield the findings about the vinyl files of one data directory."""
    by_name = {f.name: f for f in files}
    reported_names: set[str] = set()
    for f in files:
        suffix = _PARTNER.get(f.context.kind) if f.context.kind else None
        partner = f.name.rpartition(".")[0] + suffix if suffix else None
        if partner and partner not in by_name:
            reported_names.add(partner)
            yield SetFinding(partner, _report_half_run(f, vylogs))
        elif partner and f.context.kind is FileKind.INDEX:
            yield from _compare_index_with_run(f, by_name[partner])
    if vylogs:
        yield from _check_expected_runs(vylogs[-1], by_name, reported_names)


def _report_half_run(file: TarantoolMember, vylogs: Sequence[TarantoolMember]) -> Finding:
    """Report one file of a run without the other: a note where the newest metadata log does not need the run any
    more.
    """
    text = f"{posixpath.basename(file.name)} is there, its other half is not"
    facts = vylogs[-1].facts if vylogs else None
    if not isinstance(facts, VylogFacts) or facts.damaged or file.context.number not in facts.unneeded:
        return make_finding("missing-member", None, 0, text, diagnosis="missing_file")
    text += f": {posixpath.basename(vylogs[-1].name)} does not need the run, and the server removes what is left of it"
    return make_finding("missing-member", None, 0, text, severity=Severity.NOTE, diagnosis="dropped_run")


def _check_expected_runs(
    vylog: TarantoolMember, by_name: dict[str, TarantoolMember], reported_names: set[str]
) -> Iterator[SetFinding]:
    """Report missing runs that the newest metadata log needs; a warning where the directory holds no vinyl files at
    all.
    """
    facts = vylog.facts
    if not isinstance(facts, VylogFacts) or facts.damaged:
        return
    any_run = any(f.context.kind in _PARTNER for f in by_name.values())
    severity = Severity.ERROR if any_run else Severity.WARNING
    for tree, run in facts.find_needed_runs():
        for suffix in ("run", "index"):
            name = posixpath.join(posixpath.dirname(vylog.name), f"{tree.space}/{tree.index}/{run.id:020d}.{suffix}")
            if name not in by_name and name not in reported_names:
                text = f"{posixpath.basename(vylog.name)} knows run {run.id} of space {tree.space}, index {tree.index}"
                found = make_finding("missing-member", None, 0, text, severity=severity, diagnosis="missing_file")
                yield SetFinding(name, found)


def _compare_index_with_run(index: TarantoolMember, run: TarantoolMember) -> Iterator[SetFinding]:
    """Report differences between an index and its run."""
    index_facts, run_facts = index.facts, run.facts
    if (
        not isinstance(index_facts, IndexFacts)
        or not isinstance(run_facts, RunFacts)
        or index_facts.damaged
        or index_facts.place is None
    ):
        return
    differences = list(_compare_pages(index_facts.pages, run_facts, run))
    if not run_facts.damaged:
        differences += _compare_totals(index_facts, run_facts)
    for text in differences:
        found = make_finding(
            "meta-mismatch", index_facts.place.offset, index_facts.place.size, text, diagnosis="run_index_mismatch"
        )
        yield SetFinding(index.name, found)


def _compare_pages(listed_pages: Sequence[RunPage], run_facts: RunFacts, run: TarantoolMember) -> Iterator[str]:
    """Yield differences of pages: offsets must chain from the run's header to its end, each page be as described."""
    layout = run.member.layout
    assert layout is not None
    expected = layout.frames_at
    pages_by_offset = {page.offset: page for page in run_facts.pages}
    for number, page in enumerate(listed_pages):
        if page.offset != expected:
            yield f"page {number} is said to start at {page.offset:#x}, the one before it ends at {expected:#x}"
            return
        expected = page.offset + page.size
        if page.offset in pages_by_offset and pages_by_offset[page.offset] != page:
            yield (
                f"page {number} is described as {_describe_page(page)}, the run has "
                f"{_describe_page(pages_by_offset[page.offset])}"
            )
        elif page.offset not in pages_by_offset and not run_facts.damaged:
            yield f"page {number} at {page.offset:#x} is not in the run"
    if expected != run_facts.end and not run_facts.damaged:
        yield f"the pages end at {expected:#x}, the run at {run_facts.end:#x}"


def _describe_page(page: RunPage) -> str:
    return (
        f"{page.size} bytes, {page.unpacked_size} unpacked, {page.row_count} rows, ROWINDEX at {page.row_index_offset}"
    )


def _compare_totals(index_facts: IndexFacts, run_facts: RunFacts) -> Iterator[str]:
    for name, listed, actual in (
        ("min_lsn", index_facts.min_lsn, run_facts.min_lsn),
        ("max_lsn", index_facts.max_lsn, run_facts.max_lsn),
    ):
        if listed != actual and actual is not None:
            yield f"{name} is said to be {listed}, the rows of the run say {actual}"
    for row_type, count in index_facts.stat.items():
        if count != run_facts.stat.get(row_type, 0):
            yield f"{count} rows of type {TYPE_NAMES[row_type]} are said, the run has {run_facts.stat.get(row_type, 0)}"
