"""The malformed logs of MySQL's own tests of its crash recovery: each must be refused by the rule that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.mysql_binlog.validated_events import diagnoses, errors, events_of, judged, judged_file, log_of

pytestmark = pytest.mark.full_corpus

RULES = {
    "ddl_in_transaction": ("nesting", 399, 157),
    "duplicate_xid": ("xid-twice", 672, 430),
    "duplicate_xid_ddl": ("xid-twice", 507, 430),
    "duplicate_xid_xa_commit": ("xa-finished-twice", 1057, 980),
    "duplicate_xid_xa_prepare": ("xa-prepared-twice", 884, 539),
    "duplicate_xid_xa_rollback": ("xa-finished-twice", 1057, 980),
    "malformed_xid_xa_commit": ("xa-id", 889, 812),
    "malformed_xid_xa_rollback": ("xa-id", 889, 812),
    "orphan_begin_start": ("nesting", 487, 157),
    "orphan_commit": ("nesting", 431, 352),
    "orphan_rollback": ("nesting", 589, 510),
    "orphan_xa_commit": ("nesting", 775, 430),
    "orphan_xa_prepare": ("nesting", 236, 157),
    "orphan_xa_rollback": ("nesting", 775, 430),
    "orphan_xid": ("nesting", 509, 430),
}
"""The rule, where it is broken, and the durable end in front of it."""

WRONG_CHECKSUM = {
    "duplicate_xid", "duplicate_xid_ddl", "duplicate_xid_xa_prepare", "malformed_xid_xa_commit",
    "malformed_xid_xa_rollback",
}  # fmt: skip
"""Made by changing bytes: the checksum of the event is wrong, and is what verify names."""


def _path(corpus: Path, name: str) -> Path:
    return corpus / "mysql-binlog/third-party/mysql-test-std_data/std_data/binlog_recovery" / f"{name}.000001"


def test_there_are_fifteen_malformed_logs(corpus: Path) -> None:
    assert {path.stem for path in _path(corpus, "x").parent.iterdir()} == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_malformed_log_is_an_error_where_it_breaks_the_rule(corpus: Path, name: str) -> None:
    rule, place, durable = RULES[name]
    report = judged_file(_path(corpus, name))
    rule = "checksum" if name in WRONG_CHECKSUM else rule
    assert (rule, place) in [(one.facts.get("diagnosis"), one.offset) for one in errors(report)]
    assert report.durable_end == durable


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("backend", ["python", "native"])
def test_the_rule_itself_is_named_when_checksums_and_positions_are_right(corpus: Path, name: str, backend: str) -> None:
    data = log_of(events_of(_path(corpus, name).read_bytes()))
    assert RULES[name][0] in diagnoses(judged(data, backend))
