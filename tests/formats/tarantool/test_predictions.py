"""Predictions of starts against the verdicts that servers gave: Tarantool 3.9 and 2.6 (`predictions.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.findings import Severity
from binlogtool.formats.tarantool.replay import replayer
from tests.cli.invoke import invoke
from tests.formats.tarantool.predictions import Case, answer, cases

pytestmark = pytest.mark.full_corpus


def test_an_intact_log_with_one_transaction_of_1500_rows_needs_little_memory(corpus: Path) -> None:
    folder = corpus / "tarantool-3.9" / "generated" / "big_sync_transaction"
    (result,) = binlogtool.replay([folder], limits=binlogtool.Limits(max_memory=16 << 20))
    assert (result.starts, {one.name: one.keys for one in result.objects}["s"]) == (True, 1501)


SAID = {
    "insert-dup": "Duplicate key exists in unique index 'pk' in space 'orders'",
    "wrong-type": "Tuple field 1 type does not match one required by operation: expected unsigned",
    "neg-key": "Tuple field 1 type does not match one required by operation: expected unsigned",
    "update-unknown-op": 'Unknown UPDATE operation #1: "?"',
    "update-pk": "Attempt to modify a tuple field which is part of index 'pk' in space 'orders'",
    "delete-index1": "No index #3 is defined in space 'orders'",
    "unknown-type": "Missing mandatory field in request: the server does not know this type",
    "drop-space-with-index": "Can't drop space 'orders': the space has indexes",
    "ddl-space": "Space engine 'rocks' does not exist",
}
"""The words of Tarantool 2.6; of a type that it does not know it names a field that is none."""


@pytest.mark.parametrize("name", SAID)
def test_a_row_that_the_server_refuses_stops_the_start(corpus: Path, tmp_path: Path, name: str) -> None:
    found = case_of(corpus, f"2.6/tarantool-replay-constraints/{name}")
    (result,) = binlogtool.replay([found.build(tmp_path / "data")])
    assert result.starts is False
    assert result.stop is not None
    assert result.stop.why == SAID[name]


def test_a_key_that_is_twice_in_a_secondary_unique_index_stops_the_start(corpus: Path) -> None:
    (result,) = binlogtool.replay([corpus / "found-3" / "tarantool-issue-5874"])
    assert result.starts is False
    assert result.stop is not None
    assert result.stop.why.startswith("Duplicate key exists in unique index")


def case_of(corpus: Path, name: str) -> Case:
    """The recorded case of this name."""
    (found,) = (one for one in cases(corpus) if one.name == name)
    return found


DAMAGED = (
    "row_system_space_300", "row_vinyl_deferred_257", "row_session_settings_380", "row_vspace_281", "row_type_select",
    "row_type_unknown_200", "row_insert_arrow_bad", "row_delete_range_nokey", "row_no_body", "row_no_space_id",
    "row_no_tuple", "row_insert_twice", "row_bad_tuple_type", "row_empty_tuple", "row_delete_bad_key_type",
    "row_delete_key_parts", "row_upsert_no_ops_key", "drop_index_row", "drop_space_row", "schema_uuid_changed",
    "space_dup_name", "space_unknown_engine", "space_unknown_option", "snap_bad_row_last", "snap_no_tuple_last",
    "snap_unknown_system_space", "tx_commit_row_removed", "tx_first_row_removed", "tx_middle_row_removed",
    "tx_all_but_commit_removed", "tx_split_over_blocks", "tx_commit_flag_cleared", "tx_commit_flag_early",
    "tx_tsn_changed", "tx_first_tsn_changed", "tx_key8_removed_inside", "tx_bad_row_inside", "tx_nop_inside",
    "row_key8_zero_nocommit", "row_key8_equals_lsn", "row_lsn_gap", "row_lsn_huge", "row_lsn_2_63", "row_replica_32",
    "row_replica_100", "row_replica_unregistered", "row_no_replica_id", "row_flags_wait_sync", "row_flags_wait_both",
    "row_delete_range_all", "ctl_confirm_no_body", "ctl_raft_bad", "ctl_raft_nobody", "cluster_row_deleted",
    "snap_no_schema_space", "snap_user_rows_first", "snap_user_space_def_gone", "snap_user_mixed",
    "snap_user_row_twice", "snap_user_no_index", "row_unknown_header_key", "row_header_known_body_key_wrongtype",
    "row_type_missing", "row_str_body_key", "good_crc_empty_payload", "good_crc_zstd_trailing", "zstd_two_frames",
    "length_64bit_wrap",
)  # fmt: skip


INTACT = ("big_sync_transaction", "blackhole", "chain3", "delete_range", "mixed_local_first", "replica_1", "sync",
          "sync_unconfirmed", "types", "update_rules")  # fmt: skip


@pytest.mark.parametrize("policy", ["server", "force"])
@pytest.mark.parametrize("name", INTACT)
def test_what_tarantool_3_wrote_is_replayed_to_the_rows_that_it_had(corpus: Path, name: str, policy: str) -> None:
    found = case_of(corpus, f"3.9/{name}")
    assert answer(found, policy, found.base).why == ""


def test_an_anonymous_replica_needs_its_configuration(corpus: Path) -> None:
    (result,) = binlogtool.replay([corpus / "tarantool-3.9" / "generated" / "anonymous_replica"])
    assert result.starts is None
    assert result.stop is not None
    assert "replication_anon = true" in result.stop.why


def test_the_starting_server_decides_which_rules_hold(corpus: Path) -> None:
    """A transaction without a commit row: 3.9 refuses the log, 2.6 applies rows one by one."""
    folder = corpus / "tarantool-3.9" / "repro" / "D05_no_commit_row"
    (new,) = binlogtool.replay([folder])
    (old,) = binlogtool.replay([folder], server_version="2.6")
    assert (new.starts, old.starts) == (False, True)
    assert new.stop is not None
    assert new.stop.why == "found a not finished transaction in the log"


@pytest.mark.parametrize("policy", ["server", "force"])
@pytest.mark.parametrize("name", DAMAGED)
def test_what_tarantool_3_does_with_damage_is_predicted(corpus: Path, tmp_path: Path, name: str, policy: str) -> None:
    found = case_of(corpus, f"3.9/damaged/{name}")
    assert answer(found, policy, found.build(tmp_path / "data")).why == ""


@pytest.mark.parametrize("name", ["mixed_local_first", "types"])
def test_a_transaction_that_ends_with_a_row_without_its_number_is_whole(corpus: Path, name: str) -> None:
    """Tarantool 3.9 started on both and had all rows (D02)."""
    found = binlogtool.verify(corpus / "tarantool-3.9" / "generated" / name)
    assert [one.id for file in found.files for one in file.findings] == []


@pytest.mark.parametrize(
    ("name", "diagnosis"),
    [
        ("damaged/renamed_short", "name_not_20_digits"),
        ("damaged/dup_name_unpadded", "name_not_20_digits"),
        ("damaged/snap_renamed_short", "name_not_20_digits"),
        ("damaged/snap_dup_name_unpadded", "name_not_20_digits"),
        ("damaged_vinyl/vylog_renamed_inprogress", "inprogress_in_the_way"),
        ("damaged/good_crc_empty_payload", "empty_block"),
    ],
)
def test_verify_reports_what_stops_the_server(corpus: Path, tmp_path: Path, name: str, diagnosis: str) -> None:
    found = case_of(corpus, f"3.9/{name}")
    assert not found.verdicts["server"]["started"]
    report = binlogtool.verify([found.build(tmp_path / "data")])
    assert diagnosis in [one.facts.get("diagnosis") for one in report.findings if one.severity is Severity.ERROR]


def test_tables_report_the_rows_that_a_range_deletes(corpus: Path) -> None:
    """Tarantool 3.9 deleted 11 rows of s and 5 of t by 3 requests, whose keys the log does not have (D03)."""
    folder = corpus / "tarantool-3.9" / "repro" / "D03_delete_range"
    with binlogtool.open(folder) as log:
        told = [one for block in log.table_rows(Selection()) if isinstance(block, RecordBlock) for one in block.bodies]
    found = [(one.changes.name, finding.message) for one in told if one.changes for finding in one.findings]
    assert sorted(name for name, _ in found) == ["s", "s", "t"]
    assert all("the log does not name them" in text for _, text in found)


def test_diagnose_reports_what_a_start_depends_on_and_was_not_checked(corpus: Path) -> None:
    """3.9 refuses a damaged `.sortdata` with memtx_use_sort_data = true, and does not read it without (D27)."""
    (found,) = binlogtool.diagnose([corpus / "tarantool-3.9" / "repro" / "D27_sortdata"]).logs
    assert found.start == "yes"
    (text,) = found.replays[0].details["startup"]["not_checked"]
    assert text.startswith("not checked: 00000000000000000125.sortdata (read only with memtx_use_sort_data = true;")


def test_more_rows_than_are_checked_are_reported(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayer, "MAX_CHECKED_ROWS", 100)
    (found,) = binlogtool.diagnose([corpus / "tarantool-3.9" / "generated" / "chain3"]).logs
    (text,) = found.replays[0].details["startup"]["not_checked"]
    assert text == "not checked: rows against formats and keys (too many rows)"


@pytest.mark.parametrize(
    ("patterns", "last_steps"),
    [
        (("*.vylog",), ["(memtx_dir)", "predict what the server does now", "only if the prediction is yes"]),
        (("*.vylog", "*.xlog"), ["restore 00000000000000000087.vylog", "predict what the server does now", "start"]),
    ],
)
def test_diagnose_restores_the_snapshot_before_a_start_with_a_damaged_metadata_log(
    corpus: Path, tmp_path: Path, patterns: tuple[str, ...], last_steps: list[str]
) -> None:
    """Tarantool 2.6 starts empty beside intact metadata logs alone, and refuses them beside logs without a snapshot."""
    for path in (one for pattern in patterns for one in (corpus / "found-3/tarantool-vylog-refs/base").glob(pattern)):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damaged = tmp_path / "00000000000000000087.vylog"
    content = bytearray(damaged.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4] = b"XXXX"
    damaged.write_bytes(content)
    steps = [
        step["what"] for step in json.loads(invoke("diagnose", "-O", "json", str(tmp_path)).text)["logs"][0]["steps"]
    ]
    assert all(wanted in step for wanted, step in zip(last_steps, steps[-3:], strict=True))
    assert any("restore the snapshot (.snap)" in step for step in steps)
