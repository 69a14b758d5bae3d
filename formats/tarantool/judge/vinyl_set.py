"""Check runs, their indexes and the metadata log against each other (`docs/spec/tarantool-xlog.md#5-vinyl-files`)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from binlogtool.findings import Finding, Severity, finding
from binlogtool.formats.judging import SetFinding
from binlogtool.formats.tarantool.codes import FileKind
from binlogtool.formats.tarantool.judge.vinyl import IndexFacts, Page, RunFacts, VylogFacts
from binlogtool.formats.tarantool.rows.names import TYPE_NAMES

if TYPE_CHECKING:
    from binlogtool.formats.tarantool.judge.chain import File

_PARTNER = {FileKind.RUN: ".index", FileKind.INDEX: ".run"}


def judge_vinyl(files: Sequence[File], vylogs: Sequence[File]) -> Iterator[SetFinding]:
    """Yield the findings about the vinyl files of one data directory."""
    by_name = {f.name: f for f in files}
    told: set[str] = set()
    for f in files:
        suffix = _PARTNER.get(f.context.kind) if f.context.kind else None
        partner = f.name.rpartition(".")[0] + suffix if suffix else None
        if partner and partner not in by_name:
            told.add(partner)
            yield SetFinding(partner, _half(f, vylogs))
        elif partner and f.context.kind is FileKind.INDEX:
            yield from _agree(f, by_name[partner])
    if vylogs:
        yield from _expected_runs(vylogs[-1], by_name, told)


def _half(file: File, vylogs: Sequence[File]) -> Finding:
    """Report one file of a run without the other: a note where the newest metadata log does not need the run any
    more.
    """
    text = f"{posixpath.basename(file.name)} is there, its other half is not"
    facts = vylogs[-1].facts if vylogs else None
    if not isinstance(facts, VylogFacts) or facts.damaged or file.context.number not in facts.unneeded:
        return finding("missing-member", None, 0, text, diagnosis="missing_file")
    text += f": {posixpath.basename(vylogs[-1].name)} does not need the run, and the server removes what is left of it"
    return finding("missing-member", None, 0, text, severity=Severity.NOTE, diagnosis="dropped_run")


def _expected_runs(vylog: File, by_name: dict[str, File], told: set[str]) -> Iterator[SetFinding]:
    """Report missing runs that the newest metadata log needs; a warning where the directory holds no vinyl files at
    all.
    """
    facts = vylog.facts
    if not isinstance(facts, VylogFacts) or facts.damaged:
        return
    any_run = any(f.context.kind in _PARTNER for f in by_name.values())
    severity = Severity.ERROR if any_run else Severity.WARNING
    for tree, run in facts.needed_runs():
        for suffix in ("run", "index"):
            name = posixpath.join(posixpath.dirname(vylog.name), f"{tree.space}/{tree.index}/{run.id:020d}.{suffix}")
            if name not in by_name and name not in told:
                text = f"{posixpath.basename(vylog.name)} knows run {run.id} of space {tree.space}, index {tree.index}"
                found = finding("missing-member", None, 0, text, severity=severity, diagnosis="missing_file")
                yield SetFinding(name, found)


def _agree(index: File, run: File) -> Iterator[SetFinding]:
    """Report differences between an index and its run."""
    said, seen = index.facts, run.facts
    if not isinstance(said, IndexFacts) or not isinstance(seen, RunFacts) or said.damaged or said.place is None:
        return
    reasons = list(_pages(said.pages, seen, run))
    if not seen.damaged:
        reasons += _totals(said, seen)
    for text in reasons:
        found = finding("meta-mismatch", said.place.offset, said.place.size, text, diagnosis="run_index_mismatch")
        yield SetFinding(index.name, found)


def _pages(said: Sequence[Page], seen: RunFacts, run: File) -> Iterator[str]:
    """Yield differences of pages: offsets must chain from the run's header to its end, each page be as described."""
    layout = run.member.layout
    assert layout is not None
    expected = layout.frames_at
    real = {page.offset: page for page in seen.pages}
    for number, page in enumerate(said):
        if page.offset != expected:
            yield f"page {number} is said to start at {page.offset:#x}, the one before it ends at {expected:#x}"
            return
        expected = page.offset + page.size
        if page.offset in real and real[page.offset] != page:
            yield f"page {number} is described as {_words(page)}, the run has {_words(real[page.offset])}"
        elif page.offset not in real and not seen.damaged:
            yield f"page {number} at {page.offset:#x} is not in the run"
    if expected != seen.end and not seen.damaged:
        yield f"the pages end at {expected:#x}, the run at {seen.end:#x}"


def _words(page: Page) -> str:
    return (
        f"{page.size} bytes, {page.unpacked_size} unpacked, {page.row_count} rows, ROWINDEX at {page.row_index_offset}"
    )


def _totals(said: IndexFacts, seen: RunFacts) -> Iterator[str]:
    for name, a, b in (("min_lsn", said.min_lsn, seen.min_lsn), ("max_lsn", said.max_lsn, seen.max_lsn)):
        if a != b and b is not None:
            yield f"{name} is said to be {a}, the rows of the run say {b}"
    for row_type, count in said.stat.items():
        if count != seen.stat.get(row_type, 0):
            yield f"{count} rows of type {TYPE_NAMES[row_type]} are said, the run has {seen.stat.get(row_type, 0)}"
