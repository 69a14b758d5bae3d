"""What servers do with a log: the recorded behaviour of the real tools and servers is the oracle."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core import decode_batches, record_filter
from binlogtool.errors import UsageError
from binlogtool.format_api.replay_rules import encode_canonical
from binlogtool.formats.binlog_events.replay.simulated_applier import ExecutedGtids, parse_executed_gtids
from binlogtool.formats.mysql_binlog.format import FORMAT
from binlogtool.prediction.row_store import hash_row
from tests.formats.mysql_binlog import make_log as make
from tests.formats.mysql_binlog import row_building

GENERATED = "mysql-binlog/generated"
UUID = "4806e0cc-e55c-11f1-8d64-02fc00000001"

PRINTED_DIFFERENTLY = {
    "mariadb-11.8/crc-xid-removed.bin": "the tool prints on; the server refuses the next GTID (error 1953)",
    "mariadb-11.8/nocrc-xid-removed.bin": "the same",
    "mysql-9.7/crc-xid-removed.bin": "the same (error 1766)",
    "mysql-9.7/nocrc-xid-removed.bin": "the same",
    "mariadb-11.8/nocrc-length-too-big.bin": "the tool crashes while it prints the event",
    "mysql-9.7/nocrc-length-too-big.bin": "the tool prints the broken rows before it fails at the next event",
    "mysql-9.7/nocrc-length-too-small.bin": "the same",
}
"""Damaged files of which the tool prints another number of events than the server takes."""


def replayed(path: Path, **options: Any) -> Any:
    [one] = binlogtool.replay([path], **options)
    return one


@cache
def plainly(path: Path) -> Any:
    """The same, without options: once for all tests."""
    return replayed(path)


def reasons(path: Path, **options: Any) -> dict[int, tuple[str, str]]:
    """(verb, reason) by record."""
    decisions: list[Any] = []
    binlogtool.replay([path], on_decision=decisions.append, **options)
    return {one.record: (one.verb, one.reason) for one in decisions}


def losses(one: Any) -> list[Any]:
    return [found for _, found in one.findings if found.id == "silent-loss"]


def cases(corpus: Path) -> list[dict[str, Any]]:
    found = json.loads((corpus / GENERATED / "damaged/expected.json").read_text())
    return [case for case in found if case["file"].endswith(".bin")]


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_as_many_events_are_taken_as_the_real_tool_prints_of_every_damaged_file(corpus: Path) -> None:
    differs = {}
    for case in cases(corpus):
        name, tool = case["file"].removeprefix("damaged/"), case["tool"]["verify_binlog_checksum"]
        one = plainly(corpus / GENERATED / case["file"])
        taken = one.decisions["applied"] + one.decisions["skipped"] - one.reasons.get("not-reached", 0)
        if taken != tool["events_printed"]:
            differs[name] = taken
        elif tool["exit"] == 1:
            assert one.stop is not None, name
        elif tool["exit"] == 0:
            assert one.stop is None, name
    assert set(differs) == set(PRINTED_DIFFERENTLY)


def test_the_reading_stops_where_the_first_damage_is(corpus: Path) -> None:
    checked = 0
    for case in cases(corpus):
        stop = plainly(corpus / GENERATED / case["file"]).stop
        bad = case["expect"].get("first_bad_event_at")
        if stop is not None and stop.offset is not None:
            assert stop.offset == bad, case["file"]
            checked += 1
    assert checked == 60


def test_a_loss_that_no_tool_tells_is_found_in_every_file_that_has_one(corpus: Path) -> None:
    silent = ("table-map-removed", "transaction-removed", "truncated-in-transaction")
    for case in cases(corpus):
        found = losses(plainly(corpus / GENERATED / case["file"]))
        kind = case["file"].rpartition("crc-")[2].removesuffix(".bin")
        if kind in silent:
            assert found, case["file"]
        elif case["expect"].get("detected_by") and kind != "zero-hole":
            assert not found, (case["file"], found)


def test_force_leaves_out_the_damaged_transaction_and_applies_those_behind_it(corpus: Path) -> None:
    log = corpus / GENERATED / "damaged/mysql-9.7/crc-two-damages.bin"
    forced = replayed(log, policy="force")
    assert forced.stop is None
    assert forced.position["gtid"] == f"{UUID}:1-6:8-16:18-20"
    assert forced.reasons["damaged"] > 0
    assert replayed(log).position["gtid"] == f"{UUID}:1-6"


def test_behind_damage_in_a_file_that_was_not_closed_events_are_lost_without_a_word(
    corpus: Path, tmp_path: Path
) -> None:
    data = bytearray((corpus / GENERATED / "damaged/mysql-9.7/crc-bitflip-row-body.bin").read_bytes())
    data[4 + 17] |= 1  # BINLOG_IN_USE, which the checksum leaves out
    log = tmp_path / "b.000001"
    log.write_bytes(data)
    one = replayed(log)
    assert one.stop is None and one.starts
    assert one.reasons["behind-damage"] == 38, "expected.json: events_good_after"
    # at its start MySQL 9.7 reads over an event with a wrong checksum, and cuts nothing off
    assert {found.facts["situation"] for found in losses(one)} == {"apply"}


def test_a_missing_file_is_a_silent_loss_of_its_transactions(corpus: Path) -> None:
    [loss] = losses(replayed(corpus / GENERATED / "damaged/mysql-9.7/set-missing-file"))
    assert loss.facts["missing_gtids"] == {UUID: [[27, 34]]}
    [loss] = losses(replayed(corpus / GENERATED / "damaged/mariadb-11.8/set-missing-file"))
    assert loss.facts["missing_gtids"] == {"1-2": [[30, 36]]}


# -- what is intact ----------------------------------------------------------------------------------------------------


def intact(corpus: Path) -> list[dict[str, Any]]:
    manifest = json.loads((corpus / GENERATED / "manifest.json").read_text())
    no = ("crash", "relay", "encrypted")
    return [one for one in manifest if not any(word in one["file"] for word in no) and not one["in_use_flag"]]


def test_every_transaction_of_every_intact_log_is_applied(corpus: Path) -> None:
    checked = 0
    for one in intact(corpus):
        result = replayed(corpus / GENERATED / one["file"], digest=False)
        assert result.stop is None and not result.decisions["rejected"], one["file"]
        assert set(result.reasons) <= {
            "committed", "control", "statement", "rolled-back", "rolled-back-to-savepoint", "xa-committed",
            "start-alter", "not-transactional",
        }, one["file"]  # fmt: skip
        last = one.get("gtid_last")
        if last and last != "ANONYMOUS":
            assert last in {str(result.position["gtid"]), *ends(result.position["gtid"])}, one["file"]
            checked += 1
    assert checked > 60


def ends(gtids: str) -> set[str]:
    """The last GTID of each source of a position."""
    found = set()
    for item in gtids.split(","):
        source, colon, numbers = item.rpartition(":")
        found |= {f"{source}:{numbers.rpartition('-')[2]}"} if colon else {item}
    return found


@pytest.mark.parametrize("server", ["mariadb-10.11", "mariadb-11.8", "mysql-9.7"])
def test_a_log_in_files_and_its_files_one_by_one_leave_the_same_state(corpus: Path, server: str) -> None:
    folder = corpus / GENERATED / server / "rotated-set"
    start = {"gtid": replayed(folder).details["begins_behind"]}
    whole = replayed(folder, against=start)
    position, counts = start, Counter[str]()
    for log in sorted(folder.glob("rot-bin.00000?")):
        one = replayed(log, against=position)
        position = {"gtid": one.position["gtid"]}
        counts.update(one.decisions)
    assert position == {"gtid": whole.position["gtid"]}
    assert counts["applied"] == whole.decisions["applied"]


def test_a_relay_log_leaves_the_state_of_the_source_that_it_came_from(corpus: Path, tmp_path: Path) -> None:
    for server in ("mariadb-11.8", "mysql-9.7"):
        folder = corpus / GENERATED / server / "relay"
        source = replayed(folder)
        assert source.reasons["another-log"] > 0, "the relay log beside it holds the same"
        alone = tmp_path / server
        alone.mkdir()
        for log in folder.glob("relay.0*"):
            shutil.copy(log, alone / log.name)
        relay = replayed(alone)
        assert relay.stop is None and relay.position["gtid"] == source.position["gtid"]
        assert relay.digest == source.digest


def test_prepared_transactions_take_effect_with_their_commit_only(corpus: Path) -> None:
    for name in ("mariadb-11.8/xa/mariadb-bin.000001", "mysql-9.7/xa/binlog.000001"):
        found = reasons(corpus / GENERATED / name)
        rolled_back = [record for record, one in found.items() if one == ("skipped", "rolled-back")]
        assert rolled_back == list(range(rolled_back[0], rolled_back[-1] + 1))  # XA 'g2'
        assert len(rolled_back) == (5 if "mariadb" in name else 6)
        cut = replayed(corpus / GENERATED / name, until=f"record:{rolled_back[-1] + 1}")
        assert cut.details["xa_prepared"] == ["X'6732',X'',1"]
        assert cut.reasons["xa-prepared"] == len(rolled_back)


def test_rows_behind_a_savepoint_that_was_rolled_back_to_are_not_applied(corpus: Path) -> None:
    log = corpus / GENERATED / "mariadb-10.11/savepoint-nontrans-row/mariadb-bin.000001"
    found = reasons(log)
    undone = [record for record, one in found.items() if one == ("skipped", "rolled-back-to-savepoint")]
    assert undone == [17, 18], "TABLE_MAP and rows between SAVEPOINT and ROLLBACK TO"
    rows = {one.name: one.keys for one in replayed(log).objects}
    assert rows["db_east1.orders2_i"] == 3


def test_the_first_half_of_a_two_phase_alter_changes_nothing(corpus: Path) -> None:
    found = reasons(corpus / GENERATED / "mariadb-11.8/alter-two-phase/mariadb-bin.000001")
    assert [record for record, one in found.items() if one[1] == "start-alter"] == [7, 8]


# -- crash recovery ----------------------------------------------------------------------------------------------------

CRASHES = (
    "mysql-9.7/crash-disk-full", "mysql-9.7/crash-kill9", "mariadb-10.11/crash-kill9", "mariadb-11.8/crash-kill9",
    "mariadb-11.8/crash-disk-full",
)  # fmt: skip


@pytest.mark.parametrize("name", CRASHES)
def test_crash_recovery_ends_with_the_transactions_that_the_real_server_had_behind_it(corpus: Path, name: str) -> None:
    before, after = (corpus / GENERATED / f"{name}-{side}" for side in ("before", "after"))
    one = replayed(before)
    recovery = one.details["crash_recovery"]
    assert one.starts and recovery["needed"]
    size = (after / "crash-bin.000001").stat().st_size
    if name.startswith("mysql"):
        assert recovery["cut_at"] == size
    else:
        assert recovery["cut_at"] is None and size == (before / "crash-bin.000001").stat().st_size
    assert recovery["goes_on_in"] == "crash-bin.000002"
    text = gzip.decompress((after / "crash-bin.000002.txt.gz").read_bytes()).decode(errors="replace")
    listed = re.search(r"Gtid list \[([^\]]*)\]|Previous-GTIDs\n# ([^\n]*)", text)
    assert listed is not None
    assert recovery["gtid"] == (listed[1] or listed[2]).strip()


@pytest.mark.full_corpus
def test_mysql_refuses_to_start_with_a_log_whose_events_cannot_follow_each_other(corpus: Path) -> None:
    """Five of the fifteen were changed without a new checksum, at which it does not look (recorded: MySQL 9.7)."""
    folder = corpus / "mysql-binlog/third-party/mysql-test-std_data/std_data/binlog_recovery"
    starts = [replayed(log).starts for log in folder.iterdir()]
    assert starts == [False] * 15


@pytest.mark.full_corpus
def test_an_incident_stops_whoever_applies_the_log(corpus: Path) -> None:
    log = corpus / "mysql-binlog/third-party/mariadb-test-data/std_data/bug40482-bin.000001"
    one = replayed(log)
    assert one.stop is not None and one.stop.offset == 106
    assert one.reasons["incident"] == 1 and one.decisions["rejected"] == 1


# -- what the server has -----------------------------------------------------------------------------------------------


def test_transactions_that_the_server_has_are_skipped(corpus: Path) -> None:
    log = corpus / GENERATED / "mysql-9.7/row-full-types/binlog.000001"
    one = replayed(log, against={"gtid": f"{UUID}:1-5:8"})
    skipped = {r for r, found in reasons(log, against={"gtid": f"{UUID}:1-5:8"}).items() if found[1] == "executed"}
    assert one.position["gtid"] == f"{UUID}:1-20"
    txns = {record: txn for record, txn in owners(log).items() if record in skipped}
    assert set(txns.values()) == {f"{UUID}:{number}" for number in (1, 2, 3, 4, 5, 8)}


def owners(log: Path) -> dict[int, str | int | None]:
    return {one.record: one.txn for one in decided(log)}


def decided(log: Path) -> list[Any]:
    decisions: list[Any] = []
    binlogtool.replay([log], on_decision=decisions.append)
    return decisions


def test_the_state_file_of_a_server_says_what_it_has(corpus: Path) -> None:
    folder = corpus / GENERATED / "mariadb-11.8/rotated-set"
    one = replayed(folder, against=folder / "rot-bin.state")
    assert one.decisions["applied"] == 0 and one.position["gtid"] == "1-2-53"


def test_a_replica_goes_on_where_relay_log_info_says(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / GENERATED / "mariadb-11.8/relay"
    whole = reasons(folder / "src-bin.000005")
    found = reasons(folder / "src-bin.000005", against=folder / "relay-log.info")
    done = [record for record, one in found.items() if one[1] == "executed"]
    assert done == list(range(len(done))) and 0 < len(done) <= len(whole)
    offsets = [record for record in found if record not in done]
    assert all(whole[record] == found[record] for record in offsets)


def test_a_log_that_begins_too_late_for_the_server_is_refused(corpus: Path) -> None:
    for server, has in (("mysql-9.7", f"{UUID}:1-3"), ("mariadb-11.8", "1-2-3")):
        folder = corpus / GENERATED / server / "rotated-set"
        one = replayed(folder, against={"gtid": has})
        assert one.stop is not None and "files are missing" in one.stop.why
        assert one.decisions["applied"] == 0
        assert replayed(folder, against={"gtid": has}, policy="force").decisions["applied"] > 0


def test_two_logs_in_one_directory_are_not_mixed(corpus: Path, tmp_path: Path) -> None:
    folder = corpus / GENERATED / "mysql-9.7"
    shutil.copy(folder / "xa/binlog.000001", tmp_path / "a.000001")
    shutil.copy(folder / "stmt/binlog.000001", tmp_path / "b.000001")
    one = replayed(tmp_path)
    assert one.stop is not None and "several logs" in one.stop.why and not one.decisions["applied"]
    (tmp_path / "b.000001").unlink()
    shutil.copy(corpus / GENERATED / "mariadb-11.8/xa/mariadb-bin.000001", tmp_path / "a.000002")
    one = replayed(tmp_path)
    assert one.stop is not None and "MariaDB's" in one.stop.why and not one.decisions["applied"]


def test_positions_are_read_as_servers_write_them() -> None:
    state = FORMAT.replay.parse_state  # type: ignore[union-attr]
    assert state is not None
    assert state("b.state", b"0-1-5\n0-2-3\n7-1-1\n") == {"gtid": "0-2-3,7-1-1"}, "the last of a domain counts"
    assert state("gtids.txt", f"{UUID}:1-5:7,\n{UUID[:-1]}2:3".encode()) == {"gtid": f"{UUID}:1-5:7,{UUID[:-1]}2:3"}
    info = b"7\n./relay.000004\n1234\nsource.000002\n987\n0\n0\n1\n"
    assert state("relay-log.info", info) == {
        "file": "relay.000004", "offset": 1234, "source_file": "source.000002", "source_offset": 987,
    }  # fmt: skip
    assert state("relay-log.info", b"/var/lib/relay.000012\n2085\nsrc.000005\n1837\n")["offset"] == 2085  # type: ignore[index]
    assert state("notes", b"nothing of the kind") is None


def test_a_position_of_mariadb_covers_the_numbers_below_it_and_a_set_of_mysql_only_its_own() -> None:
    executed = parse_executed_gtids(f"0-1-10,{UUID}:5")
    assert "0-7-9" in executed and "0-1-11" not in executed and "1-1-1" not in executed
    assert f"{UUID}:5" in executed and f"{UUID}:4" not in executed
    executed.add_gtid("0-7-11")
    assert executed.gtid_set_text == f"0-7-11,{UUID}:5"
    assert ExecutedGtids().gtid_set_text == ""
    with pytest.raises(UsageError):
        parse_executed_gtids("0-1")


# -- statements and rows -----------------------------------------------------------------------------------------------


def written(folder: Path, *texts: bytes) -> Path:
    log = folder / "b.000001"
    log.write_bytes(make.log([make.event(2, make.query(text)) for text in texts]))
    return log


def test_begin_inside_a_transaction_without_a_gtid_commits_it(tmp_path: Path) -> None:
    log = written(tmp_path, b"BEGIN", b"insert into t values (1)", b"BEGIN")
    found = reasons(log)
    assert found[1] == found[2] == ("applied", "implicit-commit")
    assert found[3] == ("skipped", "incomplete")


def test_what_no_rollback_reaches_stays(tmp_path: Path) -> None:
    texts = (
        b"create table m (a int) engine=MyISAM", b"BEGIN", b"insert into m values (1)", b"insert into t values (1)",
        b"ROLLBACK",
    )  # fmt: skip
    found = reasons(written(tmp_path, *texts))
    assert found[3] == ("applied", "not-transactional")
    assert found[4] == found[2] == found[5] == ("skipped", "rolled-back")


def test_an_xa_commit_of_a_transaction_that_is_not_prepared_stops_the_server(tmp_path: Path) -> None:
    log = written(tmp_path, b"XA COMMIT X'61',X'',1", b"create table t (a int)")
    one = replayed(log)
    assert one.stop is not None and "not prepared" in one.stop.why
    assert dict(one.reasons) == {"control": 1, "xa-unknown": 1, "not-reached": 1}
    assert replayed(log, policy="force").decisions == {"applied": 1, "skipped": 1, "rejected": 1}


def test_the_digest_follows_the_primary_key_of_create_table_and_of_full_metadata_alike(corpus: Path) -> None:
    """The same workload, once with the key in TABLE_MAP, once only in its CREATE TABLE: as many rows are left."""
    for server, name in (("mariadb-10.11", "mariadb-bin.000001"), ("mysql-9.7", "binlog.000001")):
        counts = [
            {one.name: one.keys for one in replayed(corpus / GENERATED / server / kind / name).objects}
            for kind in ("row-full-types", "row-metadata-full", "row-minimal-types", "row-noblob-rowsquery")
        ]
        assert all(one["db_east1.orders2_all"] == 3 for one in counts), counts
        assert all(one["db_east1.orders2_nopk"] == 0 for one in counts), counts


def test_one_log_and_the_same_log_in_two_files_have_one_digest(corpus: Path, tmp_path: Path) -> None:
    for server, name in (("mariadb-10.11", "mariadb-bin.000001"), ("mysql-9.7", "binlog.000001")):
        log = corpus / GENERATED / server / "row-full-types" / name
        whole, data = plainly(log), log.read_bytes()
        folder = tmp_path / server
        folder.mkdir()
        head = 4 + int.from_bytes(data[13:17], "little")  # event_size of FORMAT_DESCRIPTION
        middle = next(one for one in decided(log) if one.type.startswith("GTID") and one.offset > len(data) // 2).offset
        (folder / "b.000001").write_bytes(data[:middle])
        (folder / "b.000002").write_bytes(data[:head] + data[middle:])
        split = replayed(folder)
        assert split.digest == whole.digest and split.position["gtid"] == whole.position["gtid"]


def test_a_log_has_the_same_digest_before_and_after_mysql_has_cut_it(corpus: Path) -> None:
    logs = [corpus / GENERATED / f"mysql-9.7/crash-disk-full-{side}/crash-bin.000001" for side in ("before", "after")]
    torn, cut = map(plainly, logs)
    assert torn.digest == cut.digest and torn.position == cut.position
    assert torn.reasons["incomplete"] and "incomplete" not in cut.reasons


def test_every_reason_that_can_come_has_its_rule(corpus: Path) -> None:
    assert FORMAT.replay is not None
    rules = FORMAT.replay.reasons
    for case in cases(corpus)[::9]:
        for policy in ("server", "force"):
            one = replayed(corpus / GENERATED / case["file"], policy=policy)
            assert set(one.reasons) <= {*rules, "not-reached", "until"}
    assert all(rule[0].isupper() or rule.startswith("--") for rule in rules.values())


@pytest.mark.parametrize("size", [1, 2, 3, 2048])
def test_what_waits_is_applied_before_the_record_that_ends_it(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a block ended between a TABLE_MAP and its rows, these were once applied first, and had no key."""
    monkeypatch.setattr(decode_batches, "MAX_BLOCK_RECORDS", size)
    monkeypatch.setattr(record_filter, "MAX_BLOCK_RECORDS", size)
    number = struct.Struct("<i").pack
    pair = [row_building.image([number(1), number(value)]) for value in (5, 6)]
    table = make.event(make.TABLE_MAP, row_building.table_map_body(b"\x03\x03"))
    both = [[True, True]] * 2
    path = tmp_path / "log.000001"
    path.write_bytes(
        make.log(
            [
                make.event(make.QUERY, make.query(b"create table t (a int primary key, b int) engine=MyISAM")),
                table,
                make.event(23, row_building.rows_body(2, pair[0])),
                table,
                make.event(24, row_building.rows_body(2, pair[0] + pair[1], both)),
            ]
        )
    )
    (found,) = binlogtool.replay([path])
    assert found.decisions["applied"] == 5
    assert [one.keys for one in found.objects if one.name == "db.t"] == [1]
    (one,) = [one for one in found.objects if one.name == "db.t"]
    assert one.digest == f"{hash_row('db.t', encode_canonical([1]), encode_canonical({'@1': 1, '@2': 6})):064x}"
