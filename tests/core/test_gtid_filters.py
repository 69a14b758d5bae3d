"""Selection by GTID, through the library. Expectations are what `mariadb-binlog` printed of the same files."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError

DOMAINS = "mysql-binlog/generated/mariadb-10.11/domains/mariadb-bin.000001"


@pytest.fixture
def domains(corpus: Path) -> Path:
    return corpus / DOMAINS


def gtids(path: Path, **options: str) -> list[str]:
    """The GTIDs of the transactions that are chosen, in order."""
    with binlogtool.open(path) as log:
        records = list(log.records(selection=Selection(**options)))  # type: ignore[arg-type]
    assert {r.txn for r in records} == {r.txn for r in records if r.type == "GTID"}
    return [str(r.txn) for r in records if r.type == "GTID"]


def printed(path: Path) -> list[str]:
    text = gzip.decompress(path.with_name(path.name + ".txt.gz").read_bytes()).decode("utf-8", "replace")
    return re.findall(r"\tGTID (\d+-\d+-\d+)", text)


def test_a_start_position_leaves_out_what_a_replica_has(domains: Path) -> None:
    got = gtids(domains, start="gtid:0-5-3")
    assert got == [g for g in printed(domains) if g not in ("0-7-1", "0-8-2", "0-9-3")]


def test_a_stop_position_ends_its_domain_and_all_others(domains: Path) -> None:
    assert gtids(domains, stop="gtid:0-1-3") == ["0-7-1", "0-8-2", "0-9-3"]


def test_start_and_stop_together_cut_out_a_part_of_a_domain(domains: Path) -> None:
    assert gtids(domains, start="gtid:1-1-1", stop="gtid:1-1-2") == ["1-2-2"]


def test_sets_include_and_exclude(domains: Path) -> None:
    assert gtids(domains, include_gtids="0-9-3..500, 3-8-2") == ["3-8-2", "0-9-3", "0-9-500"]
    assert gtids(domains, include_gtids="0", exclude_gtids="0-9-500..501") == ["0-7-1", "0-8-2", "0-9-3"]


def test_excluding_a_set_keeps_the_records_outside_transactions(domains: Path) -> None:
    with binlogtool.open(domains) as log:
        kept = [r.type for r in log.records(selection=Selection(exclude_gtids="0,1,2,3"))]
    assert kept == ["FORMAT_DESCRIPTION", "GTID_LIST", "BINLOG_CHECKPOINT", "ROTATE"]


def test_tagged_gtids_are_chosen_by_their_tag(corpus: Path) -> None:
    path = corpus / "mysql-binlog/generated/mysql-9.7/gtid-tagged/binlog.000001"
    with binlogtool.open(path) as log:
        names = [str(r.txn) for r in log.records() if r.type == "GTID_TAGGED_LOG"]
    tagged = [name for name in names if name.count(":") == 2]
    uuid, tag, number = tagged[0].split(":")
    with binlogtool.open(path) as log:
        chosen = Selection(include_gtids=f"{uuid.upper()}:{tag}:{number}")
        assert {r.txn for r in log.records(selection=chosen)} == {tagged[0]}


@pytest.mark.parametrize("options", [{"start": "gtid:0-1-1"}, {"stop": "gtid:0-1-1"}])
def test_a_format_without_gtids_refuses_such_a_position(samples: Path, options: dict[str, str]) -> None:
    with (
        binlogtool.open(samples / "drizzle" / "basic-checksum.log") as log,
        pytest.raises(UsageError, match="this format has no GTIDs"),
    ):
        list(log.records(selection=Selection(**options)))  # type: ignore[arg-type]


def test_sets_of_other_formats_are_lists_of_names(samples: Path) -> None:
    with binlogtool.open(samples / "drizzle" / "basic-checksum.log") as log:
        some = list(log.records(selection=Selection(include_gtids="5,7")))
    assert {r.txn for r in some} == {5, 7}


def test_a_set_that_is_none_is_refused(domains: Path) -> None:
    with binlogtool.open(domains) as log, pytest.raises(UsageError, match="'0-x' is not a GTID"):
        list(log.records(selection=Selection(exclude_gtids="0-x")))
