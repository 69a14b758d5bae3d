"""The finding ids are a contract: these names and these severities, each explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from binlogtool.findings import EXPLANATIONS
from binlogtool.report.ci_reports import CHECKS

ROOT = Path(__file__).resolve().parents[2]

ELSEWHERE = (
    "columns-unknown",
    "input-unreadable",
    "changed-later",
    "not-reversible",
    "rows-not-logged",
    "rows-diverge",
    "silent-loss",
    "statement-inexact",
    "statement-large",
    "statement-left-out",
    "stopped-before",
)
"""What no verification finds."""

TABLE = {
    "torn-tail": "note",
    "log-outdated": "error",
    "age-unknown": "note",
    "zero-tail": "note",
    "preallocated-tail": "note",
    "garbage-tail": "warning",
    "unclean-close": "note",
    "checksum-mismatch": "error",
    "encrypted": "warning",
    "checksum-absent": "note",
    "length-out-of-bounds": "error",
    "count-out-of-bounds": "error",
    "varint-overlong": "error",
    "nesting-too-deep": "error",
    "inflate-limit": "error",
    "bad-magic": "error",
    "bad-header": "error",
    "unsupported-version": "error",
    "unknown-record-type": "warning",
    "reserved-bits-set": "warning",
    "unmapped-bytes": "warning",
    "payload-undecodable": "error",
    "text-undecodable": "warning",
    "duplicate-key": "warning",
    "compression-error": "error",
    "gap-in-sequence": "error",
    "sequence-regression": "error",
    "duplicate-sequence": "error",
    "time-regression": "warning",
    "dangling-reference": "error",
    "incomplete-transaction": "error",
    "damaged-range": "error",
    "valid-after-damage": "error",
    "missing-member": "error",
    "extra-member": "warning",
    "meta-mismatch": "error",
    "path-outside-set": "error",
    "changed-while-read": "error",
    "changed-since-run": "error",
    "input-unreadable": "error",
    "member-not-named": "note",
    "rows-not-logged": "error",
    "columns-unknown": "error",
    "not-reversible": "error",
    # added to the contract: what a replay finds, and no verification
    "silent-loss": "error",
    # and what a script of statements cannot say
    "statement-inexact": "error",
    "changed-later": "warning",
    "statement-large": "warning",
    "statement-left-out": "error",
    "stopped-before": "warning",
    # and what rows of tables and messages cannot tell
    "rows-diverge": "note",
}


def test_the_ids_and_default_severities_are_those_of_the_contract() -> None:
    assert {id_: known.severity.label for id_, known in EXPLANATIONS.items()} == TABLE


@pytest.mark.parametrize("id_", TABLE)
def test_every_finding_is_explained(id_: str) -> None:
    known = EXPLANATIONS[id_]
    for text in (known.meaning, known.causes, known.action):
        assert text.endswith(".")
        assert len(text) >= 8
    assert known.meaning not in (known.causes, known.action)


@pytest.mark.parametrize("id_", TABLE)
def test_every_finding_of_a_verification_belongs_to_one_check(id_: str) -> None:
    assert sum(id_ in ids for ids in CHECKS.values()) == (id_ not in ELSEWHERE)


def test_every_id_in_the_code_is_in_the_table() -> None:
    code = [p.read_text("utf-8") for folder in ("binlogtool", "formats") for p in (ROOT / folder).rglob("*.py")]
    used = {m for text in code for m in re.findall(r"\bmake_finding\(\s*\"([a-z-]+)\"", text)}
    assert used
    assert used <= TABLE.keys()
