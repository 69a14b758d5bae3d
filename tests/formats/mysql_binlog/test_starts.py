"""Does the server come up? What `diagnose` says of a damaged index, newest log or state, and what servers did."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

import binlogtool
from binlogtool.format_api.format import Hints
from binlogtool.repair.plan_types import RepairPolicy
from binlogtool.report.diagnosis_and_replay import list_steps
from tests.formats.mysql_binlog.start_contents import Event, Log, query
from tests.formats.mysql_binlog.starts import (
    ENGINES,
    GENERATORS,
    KINDS,
    LOGS,
    PREPARED,
    RECORDED,
    SERVERS,
    VARIANTS,
    RecordedStart,
    change,
    changed_logs_of,
    home_of,
    kind_of,
    logs_of,
    predict,
    predicted,
    prepared_logs_of,
    programs,
    recorded,
    verdict,
)
from tests.sampling import EXHAUSTIVE, take_sample

DID = json.loads(RECORDED.read_text())

ELSEWHERE = "index-elsewhere"
"""The index names files in another directory: it may be a copy of it."""


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", SERVERS)
def test_every_start_that_a_server_was_seen_to_make_or_to_refuse_is_predicted(
    server: str, kind: str, tmp_path: Path
) -> None:
    assert len(DID[server][kind]) >= 109
    found: dict[str, str] = {}
    for variant, did in take_sample(DID[server][kind].items(), 2 * len(SERVERS), SERVERS.index(server)):
        said = predicted(logs_of(server, kind, variant, tmp_path / variant))
        found[variant] = verdict(said, did)
    open_ones = {variant for variant, result in found.items() if result == "open"}
    assert {variant for variant, result in found.items() if result == "wrong"} == set()
    assert open_ones == {ELSEWHERE} & found.keys()


def _score_recorded(server: str, generator: str, numbers: slice, folder: Path) -> Counter[str]:
    results = Counter[str]()
    for number, did in list(enumerate(recorded(server, generator)))[numbers]:
        what = changed_logs_of(server, generator, number, folder / str(number))
        said = predict(folder / str(number))
        assert not said.is_wrong_about(did), (kind_of(number), number, what, said, did)
        results[verdict(said.start, did.starts)] += 1
    return results


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("server", SERVERS)
def test_the_first_recorded_starts_with_random_changes_are_predicted(
    server: str, generator: str, tmp_path: Path
) -> None:
    assert _score_recorded(server, generator, slice(3), tmp_path)["right"] >= 2


@pytest.mark.full
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("server", SERVERS)
def test_the_last_recorded_starts_with_random_changes_are_predicted(
    server: str, generator: str, tmp_path: Path
) -> None:
    count = 24 if EXHAUSTIVE else 8
    assert _score_recorded(server, generator, slice(-count, None), tmp_path)["right"] >= count - 1


@pytest.mark.nightly
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("server", SERVERS)
def test_all_recorded_starts_with_random_changes_are_predicted(server: str, generator: str, tmp_path: Path) -> None:
    results = _score_recorded(server, generator, slice(None), tmp_path)
    assert results["open"] <= results.total() * 0.01


def _check_prepared(server: str, starts: Iterable[tuple[int, RecordedStart]], folder: Path) -> None:
    known_rows = 0
    for number, did in starts:
        what = prepared_logs_of(server, number, folder / str(number))
        said = predict(folder / str(number))
        assert not said.is_wrong_about(did), (number, what, said, did)
        rows = said.rows_with(ENGINES[server])
        assert rows in (None, did.rows), (number, what, said, did)
        known_rows += rows is not None
    assert known_rows > 0


@pytest.mark.parametrize("server", ["mariadb-10.11", "mysql-9"])
def test_rows_of_the_first_starts_with_prepared_transactions_are_predicted(server: str, tmp_path: Path) -> None:
    _check_prepared(server, list(enumerate(recorded(server, PREPARED)))[:8], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("server", ["mariadb-10.11", "mysql-9"])
def test_rows_of_starts_with_prepared_transactions_are_predicted(server: str, tmp_path: Path) -> None:
    """The engine had them as prepared; a row is there after the start if recovery read the XID of its transaction."""
    _check_prepared(server, take_sample(list(enumerate(recorded(server, PREPARED)))[8:], 8), tmp_path)


def test_mysql_counts_no_gtid_of_its_newest_log_if_a_blank_line_ends_the_names(tmp_path: Path) -> None:
    """MySQL 9.7 recovered bin.000003 and had the GTIDs up to 11 after that, those of the older logs."""
    folder = logs_of("mysql-9", "crashed", "index-blank-last", tmp_path / "log")
    assert predict(folder)[:2] == ("YY", None)
    (one,) = binlogtool.diagnose([folder]).logs
    messages = [found.message for replay in one.replays for _, found in replay.findings]
    assert any("MySQL does not count the GTIDs in bin.000003" in message for message in messages)


PLANNED = (
    "newest-cut-0", "newest-zeros", "index-unfinished", "index-torn", "index-crlf", "index-joined-last",
    "index-double-last",
    "index-newer-missing", "index-lacks-middle", "index-blank-middle", "index-empty",
)  # fmt: skip
BY_HAND = (
    "newest-magic", "newest-garbage", "newest-missing", "index-garbage-last", "index-blank-behind", "state-garbage",
    "index-directory", "index-missing",
)  # fmt: skip


@pytest.mark.parametrize("variant", ["newest-cut-0", "newest-zeros"])
def test_a_newest_log_in_which_nothing_is_written_goes_and_undo_brings_it_back(variant: str, tmp_path: Path) -> None:
    folder = logs_of("mariadb-10.11", "crashed", variant, tmp_path / "log")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (one,) = binlogtool.diagnose([folder]).logs
    assert one.start == "no" and one.plan is not None and not one.plan.refused
    undo = binlogtool.apply_plan(one.plan).undo
    assert not (folder / "bin.000003").exists()
    assert (folder / "bin.index").read_bytes() == b"./bin.000001\n./bin.000002\n"
    assert undo is not None
    binlogtool.undo(undo)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before}
    assert after == before


def test_the_in_use_flag_of_the_newest_log_stays_when_the_index_is_repaired(tmp_path: Path) -> None:
    """Without it MariaDB 10.11 and 11.8 did not start (Found 3 prepared transactions!), and MySQL 9.7 lost a row."""
    for server in SERVERS:
        folder = logs_of(server, "crashed", "index-crlf", tmp_path / server)
        plan = binlogtool.plan_truncate(folder, policy=RepairPolicy(fix_meta=True))
        assert [(Path(one.path).name, one.action) for one in plan.changes] == [("bin.index", "rewrite")]
        binlogtool.apply_plan(plan)
        assert (folder / "bin.000003").read_bytes()[21] & 1


def test_a_newest_log_that_holds_something_is_never_taken_away(tmp_path: Path) -> None:
    for variant in ("newest-magic", "newest-garbage", "newest-head-type"):
        folder = logs_of("mariadb-10.11", "closed", variant, tmp_path / variant)
        (one,) = binlogtool.diagnose([folder]).logs
        assert one.start == "no" and (one.plan is None or one.plan.refused or not one.plan.changes)
        assert list_steps(one)[1].command is not None


@pytest.mark.parametrize(("target", "start"), [("/nonexistent/bin.index", "no"), ("bin.000002", "open")])
def test_an_index_that_is_a_link_is_not_read_through_it(tmp_path: Path, target: str, start: str) -> None:
    """MariaDB 10.11 stopped: File './bin.index' not found, where the directory of the link's target did not exist."""
    folder = logs_of("mariadb-10.11", "closed", "intact", tmp_path / "log")
    (folder / "bin.index").unlink()
    (folder / "bin.index").symlink_to(target)
    (one,) = binlogtool.diagnose([folder]).logs
    assert one.start == start


SET_AT = 146
"""Where the body of PREVIOUS_GTIDS begins in the recorded logs of MySQL: one source with one interval."""

SETS = {
    (47, 0x01): "Y", (47, 0x40): "Y", (47, 0x80): "n", (40, 0x01): "Y", (32, 0x20): "n", (32, 0x02): "Y",
    (24, 0x02): "n", (24, 0x01): "Y", (0, 0x01): "Y", (0, 0x02): "n", (7, 0x01): "Y", (7, 0x02): "n", (3, 0x01): "n",
    (10, 0x04): "Y",
}  # fmt: skip
"""Byte of the body and bits that were flipped -> did MySQL 9.7 start? Its set was <uuid>:1-10."""


@pytest.mark.parametrize(("place", "did"), SETS.items())
def test_mysql_stops_at_a_damaged_set_of_gtids_that_it_cannot_decode(
    place: tuple[int, int], did: str, tmp_path: Path
) -> None:
    folder = logs_of("mysql-9", "closed", "intact", tmp_path / "log")
    log = folder / "bin.000003"
    data = bytearray(log.read_bytes())
    assert data[SET_AT - 19 + 4] == 35
    data[SET_AT + place[0]] ^= place[1]
    log.write_bytes(data)
    assert predicted(folder)[0] == did


def test_a_set_of_gtids_in_a_log_without_checksums_is_read_to_its_last_byte(tmp_path: Path) -> None:
    """MySQL 9.7 started."""
    changed_logs_of("mysql-9", "contents", 282, tmp_path / "log")
    assert predicted(tmp_path / "log") == recorded("mysql-9", "contents")[282].starts == "YY"


@pytest.mark.parametrize(("first", "did"), [(0, "n"), (1, "Y")])
def test_mysql_stops_at_a_set_of_its_first_log_that_begins_with_number_0(first: int, did: str, tmp_path: Path) -> None:
    """MySQL 9.7 aborted: the first log is in order by itself, and no log before it has other GTIDs."""
    folder = logs_of("mysql-9", "closed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000001").read_bytes())
    body = struct.pack("<q", 1) + b"\x11" * 16 + struct.pack("<qqq", 1, first, 9)
    (folder / "bin.000001").write_bytes(log.with_body(1, body).write())
    assert predicted(folder)[0] == did


def test_a_description_of_version_0_is_accepted_where_it_names_the_server(tmp_path: Path) -> None:
    """MariaDB 10.11 started twice with the bytes from 20 on zeroed; it stopped where its version was zeroed, too."""
    for size, did in ((4, "YY"), (40, "n")):
        folder = logs_of("mariadb-10.11", "crashed", "intact", tmp_path / str(size))
        log = folder / "bin.000003"
        data = bytearray(log.read_bytes())
        data[20 : 20 + size] = bytes(size)
        log.write_bytes(data)
        assert predicted(folder) == did


DESCRIPTIONS = {
    (0, b"\0\0"): "YY", (0, b"\x01\0"): "YY", (0, b"\x2c\x01"): "YY", (2, b"\0"): "n", (2, b"x"): "n",
    (56, b"\0"): "n", (56, b"\x12"): "n", (56, b"\x14"): "YY",
}  # fmt: skip
"""Place in the body of FORMAT_DESCRIPTION and bytes there -> did MariaDB start with the closed log?"""


@pytest.mark.parametrize(("place", "did"), DESCRIPTIONS.items())
def test_mariadb_checks_only_the_server_version_and_the_header_length_of_a_description(
    place: tuple[int, bytes], did: str, tmp_path: Path
) -> None:
    folder = logs_of("mariadb-10.11", "closed", "intact", tmp_path / "log")
    log = folder / "bin.000003"
    data = bytearray(log.read_bytes())
    at, changed = place
    data[23 + at : 23 + at + len(changed)] = changed
    log.write_bytes(data)
    assert predicted(folder) == did


STATES = {
    b"+0-1-15\n": "YY", b"0-+1-15\n": "YY", b"0- 1-\t15\n": "YY", b"-0-1-15\n": "n", b"0--1-15\n": "n",
    b"0-1-15" + b"x" * 40 + b"\n": "n", b"0-1-15" + b"x" * 36 + b"\n": "YY",
    b"\r0-1-15\n": "YY", b"\xa00-\v1-\f15\n": "YY", b"\r+0-1-15\n": "YY", b"+\r0-1-15\n": "n", b"\r\n0-1-15\n": "n",
}  # fmt: skip
"""State file -> did MariaDB 10.11 start with it? It reads pieces of 43 bytes."""


@pytest.mark.parametrize(("state", "did"), STATES.items())
def test_numbers_of_a_state_file_may_have_a_plus_and_blanks(state: bytes, did: str, tmp_path: Path) -> None:
    folder = logs_of("mariadb-10.11", "closed", "intact", tmp_path / "log")
    (folder / "bin.state").write_bytes(state)
    assert predicted(folder) == did


TEXTS = {
    (b"./bin.000001\n./bin.000002\n./bin.0000038", b"0-1-15"): "Yn",
    (b"./bin.000001\n./bin.000002\n./bin.000003\0", b"0-1-15"): "Yn",
    (b"./bin.000001\n./bin.000002\n./bin.000003 ", b"0-1-15"): "Yn",
    (b"\n./bin.000001\n./bin.000002\n./bin.000003", b"0-1-15\n"): "YY",
    (b"./bin.000001\n./bin.000002\n\n./bin.000003", b"0-1-15\n"): "YY",
}
"""Index and state file after a clean shutdown -> did MariaDB 10.11 start, and once more?"""


@pytest.mark.parametrize(("texts", "did"), TEXTS.items())
def test_a_last_line_without_line_feed_counts_unless_a_blank_line_is_before_it(
    texts: tuple[bytes, bytes], did: str, tmp_path: Path
) -> None:
    folder = logs_of("mariadb-10.11", "closed", "intact", tmp_path / "log")
    for name, text in zip(("bin.index", "bin.state"), texts, strict=True):
        (folder / name).write_bytes(text)
    assert predicted(folder) == did


@pytest.mark.parametrize("kind", KINDS)
def test_mysql_appends_to_no_line_after_a_blank_one(kind: str, tmp_path: Path) -> None:
    """MySQL 9.7 started twice."""
    folder = logs_of("mysql-9", kind, "intact", tmp_path / "log")
    (folder / "bin.index").write_bytes(b"\n./bin.000001\n./bin.00")
    assert predicted(folder) == "YY"


CHECKPOINTS = {511: "n", 512: "YY"}
"""Length of the name in the last BINLOG_CHECKPOINT -> did MariaDB 10.11 start after a crash? It ignores long names."""


@pytest.mark.parametrize(("length", "did"), CHECKPOINTS.items())
def test_a_checkpoint_with_a_name_that_is_too_long_is_ignored(length: int, did: str, tmp_path: Path) -> None:
    folder = logs_of("mariadb-10.11", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    body = struct.pack("<I", length) + b"x" * length
    (folder / "bin.000003").write_bytes(log.with_inserted(len(log.events), Event(161, body)).write())
    assert predicted(folder) == did


def test_a_checkpoint_whose_name_ends_after_the_event_ends_recovery(tmp_path: Path) -> None:
    """MariaDB 10.11 started: it reads no further, and began with the file of the checkpoint before."""
    folder = logs_of("mariadb-10.11", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    body = struct.pack("<I", 1 << 20) + b"missing.000001"
    (folder / "bin.000003").write_bytes(log.with_inserted(len(log.events), Event(161, body)).write())
    assert predicted(folder) == "YY"


def test_an_older_log_that_begins_as_a_relay_log_does_not_hide_the_servers_own(tmp_path: Path) -> None:
    """MariaDB 10.11 stopped: bin.000001 not found in binlog index, needed for recovery."""
    folder = logs_of("mariadb-10.11", "crashed", "index-lacks-first", tmp_path / "log")
    log = Log.read((folder / "bin.000001").read_bytes())
    rotate = Event(4, struct.pack("<Q", 4) + b"bin.000001", flags=0x20)
    (folder / "bin.000001").write_bytes(log.with_inserted(1, rotate).write())
    assert predicted(folder) == "n"


def test_mysql_stops_at_a_gtid_before_the_list_of_previous_ones(tmp_path: Path) -> None:
    """MySQL 9.7 aborted, where PREVIOUS_GTIDS had become an event of another type."""
    folder = logs_of("mysql-9", "closed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    assert log.events[1].code == 35
    (folder / "bin.000003").write_bytes(log.without(1).write())
    assert predicted(folder) == "n"


def test_a_source_without_numbers_in_previous_gtids_is_no_error(tmp_path: Path) -> None:
    folder = logs_of("mysql-9", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    body = struct.pack("<q", 1) + b"\x11" * 16 + struct.pack("<q", 0)
    (folder / "bin.000003").write_bytes(log.with_body(1, body).write())
    assert predicted(folder) == "YY"


def test_mariadb_counts_the_first_gtid_of_older_files_where_the_newest_ends_inside_a_transaction(
    tmp_path: Path,
) -> None:
    """MariaDB 10.11 listed 0-1-3, a GTID of the oldest file, where the last transaction of the newest one was torn."""
    folder = logs_of("mariadb-10.11", "crashed", "intact", tmp_path / "log")
    assert predict(folder).gtids == "0-1-15"
    data = (folder / "bin.000003").read_bytes()
    (folder / "bin.000003").write_bytes(data[:-40])
    assert predict(folder)[:2] == ("YY", "0-1-3")


READ_ON, ENDED = "0-1-15", "0-1-3"
FOREIGN_EVENTS = {
    25: READ_ON, 33: READ_ON, 34: READ_ON, 35: READ_ON, 36: READ_ON, 37: READ_ON, 41: READ_ON, 28: ENDED, 29: ENDED,
    39: ENDED, 40: ENDED, 42: ENDED, 44: ENDED, 166: ENDED, 168: ENDED, 172: ENDED, 200: ENDED,
}  # fmt: skip
"""Type of the row event of the second transaction -> GTIDs of MariaDB 10.11 and 11.8 after a crash."""


@pytest.mark.full
@pytest.mark.parametrize(("code", "did"), FOREIGN_EVENTS.items())
def test_mariadb_reads_over_some_events_of_mysql_and_ends_reading_at_others(
    code: int, did: str, tmp_path: Path
) -> None:
    for server in SERVERS[:2]:
        folder = logs_of(server, "crashed", "intact", tmp_path / server)
        log = Log.read((folder / "bin.000003").read_bytes())
        at = log.find(23)[1]
        changed = log.with_event(at, dataclasses.replace(log.events[at], code=code))
        (folder / "bin.000003").write_bytes(changed.write())
        assert predict(folder)[:2] == ("YY", did)


PREPARES = {
    (0, 1, 1, 2): READ_ON, (0, 64, 1, 65): READ_ON, (0, 1, 0, 1): READ_ON, (0, 1, 64, 65): READ_ON,
    (0, 20, 20, 1): READ_ON, (2, 1, 0, 1): READ_ON, (0, 0, 1, 1): ENDED, (0, 65, 1, 66): ENDED, (0, 1, 65, 66): ENDED,
    (0, -1, 1, 1): ENDED, (0, 1, -1, 1): ENDED, (1, 0, 0, 0): ENDED,
}  # fmt: skip
"""one_phase, sizes of gtrid and bqual, bytes after them, in a transaction -> GTIDs of MariaDB 10.11 and 11.8."""


@pytest.mark.full
@pytest.mark.parametrize(("prepare", "did"), PREPARES.items())
def test_mariadb_ends_reading_at_an_xa_identifier_of_an_impossible_size(
    prepare: tuple[int, int, int, int], did: str, tmp_path: Path
) -> None:
    one_phase, gtrid, bqual, rest = prepare
    body = struct.pack("<BIii", one_phase, 9, gtrid, bqual) + b"x" * rest
    folder = logs_of("mariadb-11.8", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    changed = log.with_inserted(log.find(162)[1] + 1, Event(38, body))
    (folder / "bin.000003").write_bytes(changed.write())
    assert predict(folder)[:2] == ("YY", did)


UUID = "7f3437eb-ea83-11f1-ac2f-02fc00000001"
OTHER_UUID = "7f3437eb-ea83-11f1-c542-9579dfad6e56"
CUTS = {
    91: (348, f"{UUID}:1-12"), 105: (127, ""), 109: (1187, f"{UUID}:1-15"),
    121: (1317, f"{UUID}:1-11:13-15,{OTHER_UUID}:3891306132084400177"),
}  # fmt: skip
"""Number of a random damage -> size of the newest log after MySQL 9.7 started with it, and its GTIDs.

It cuts after the last event outside of a transaction that is no GTID, and takes GTIDs from damaged events, too.
"""


@pytest.mark.parametrize(("number", "after"), CUTS.items())
def test_mysql_cuts_its_newest_log_where_it_reads_no_further(
    number: int, after: tuple[int, str | None], tmp_path: Path
) -> None:
    changed_logs_of("mysql-9", "damages", number, tmp_path / "log")
    (one,) = binlogtool.diagnose([tmp_path / "log"]).logs
    recovery = one.replays[0].details["crash_recovery"]
    assert (recovery["cut_at"], recovery["gtid"]) == after


UNDECLARED = {("mysql-9", "closed"): "YY", ("mysql-9", "crashed"): "n",
              ("mariadb-10.11", "closed"): "YY", ("mariadb-10.11", "crashed"): "YY"}  # fmt: skip
"""MySQL 9.7 after a crash: Xid_log_event outside the boundary of a sequence of events, between 446 and 477."""


@pytest.mark.parametrize(("logs", "did"), UNDECLARED.items())
def test_checksums_that_the_first_event_does_not_declare_are_one_fault(
    logs: tuple[str, str], did: str, tmp_path: Path
) -> None:
    """Servers read BEGIN and four more bytes; mysqlbinlog 9.7 prints a corrupt second row in each row event."""
    folder = logs_of(*logs, "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    (folder / "bin.000003").write_bytes(log.with_body(0, log.events[0].body[:-1] + b"\0").write())
    assert predicted(folder) == did
    report = binlogtool.verify([folder / "bin.000003"])
    assert [one.facts.get("diagnosis") for one in report.findings if one.id == "bad-header"] == ["undeclared-checksums"]
    assert "checksum-absent" not in {one.id for one in report.findings}


def test_a_log_without_checksums_has_no_such_fault(tmp_path: Path) -> None:
    folder = logs_of("mysql-9", "closed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    plain = dataclasses.replace(log.with_body(0, log.events[0].body[:-1] + b"\0"), has_checksums=False)
    (folder / "bin.000003").write_bytes(plain.write())
    ids = {one.id for one in binlogtool.verify([folder / "bin.000003"]).findings}
    assert "checksum-absent" in ids and "bad-header" not in ids


def test_a_damaged_checkpoint_still_names_the_first_log_that_recovery_needs(tmp_path: Path) -> None:
    """MariaDB 10.11: Binlog file './bin.000001' not found in binlog index, needed for recovery."""
    folder = logs_of("mariadb-10.11", "crashed", "index-lacks-first", tmp_path / "log")
    assert predicted(folder) == "n"
    log = folder / "bin.000003"
    data = bytearray(log.read_bytes())
    data[316] ^= 1  # flags of BINLOG_CHECKPOINT
    log.write_bytes(data)
    assert predicted(folder) == "n"


def test_a_path_that_ends_in_a_slash_still_leads_to_the_next_log(tmp_path: Path) -> None:
    """MySQL 9.7 started twice: the name in the index became ././bin.000004."""
    folder = logs_of("mysql-9", "closed", "index-torn", tmp_path / "log")
    assert predicted(folder) == "Yn"
    (folder / "bin.index").write_bytes(b"./")
    assert predicted(folder) == "YY"


def test_a_line_of_the_index_that_names_the_root_is_looked_up_as_it_is_written(tmp_path: Path) -> None:
    """Both servers open /bin.000003, and stop; recovery of MariaDB 10.11 stops at /bin.000002."""
    for server in SERVERS:
        folder = logs_of(server, "closed", "intact", tmp_path / server)
        (folder / "bin.index").write_bytes(b"./bin.000001\n./bin.000002\n//bin.000003\n")
        assert predicted(folder) == "n"
    folder = logs_of("mariadb-10.11", "crashed", "intact", tmp_path / "crashed")
    (folder / "bin.index").write_bytes(b"./bin.000001\n//bin.000002\n./bin.000003\n")
    assert predicted(folder) == "n"


def test_mysql_reads_over_a_wrong_checksum_when_it_recovers(tmp_path: Path) -> None:
    """MySQL 9.7 started with the bit at 500 flipped, and left the file at 1,317 bytes."""
    folder = logs_of("mysql-9", "crashed", "intact", tmp_path / "log")
    log = folder / "bin.000003"
    data = bytearray(log.read_bytes())
    data[500] ^= 4
    log.write_bytes(data)
    (one,) = binlogtool.diagnose([folder]).logs
    assert one.start == "yes"
    assert {found.facts["situation"] for _, found in one.losses} == {"apply"}


# -- with servers ------------------------------------------------------------------------------------------------------


def _needs(server: str) -> None:
    if programs(server) is None:
        pytest.skip(f"{server} is not there")


def _follow(data: Path) -> None:
    """Carry out what `diagnose` says, all but what only looks."""
    (one,) = binlogtool.diagnose([data]).logs
    assert not one.is_healthy
    if one.plan is not None and not one.plan.refused and one.plan.changes:
        binlogtool.apply_plan(one.plan)
        return
    for step in list_steps(one):
        if step.command is not None and step.command.startswith(("mv ", "sed ", "(cd ")):
            subprocess.run(step.command, shell=True, check=True)


def _remedies(server: str, variants: Sequence[str]) -> None:
    _needs(server)
    with home_of(server) as home:
        for variant in variants:
            data = home.copy("closed")
            VARIANTS[variant](data)
            _follow(data)
            assert home.starts(data).starts == (True, True), variant


@pytest.mark.server
def test_mariadb_starts_after_every_remedy() -> None:
    _remedies("mariadb-10.11", take_sample(PLANNED + BY_HAND, 8))


@pytest.mark.nightly
@pytest.mark.parametrize("server", SERVERS[1:])
def test_servers_of_other_versions_start_after_every_remedy(server: str) -> None:
    mysql = server.startswith("mysql")
    _remedies(server, tuple(one for one in PLANNED + BY_HAND if not (mysql and one in ("state-garbage", "index-crlf"))))


@pytest.mark.server
@pytest.mark.parametrize("generator", GENERATORS)
def test_mariadb_still_starts_as_recorded(generator: str) -> None:
    _needs("mariadb-10.11")
    with home_of("mariadb-10.11", own_logs=False) as home:
        for number, did in enumerate(recorded("mariadb-10.11", generator)[: 12 if EXHAUSTIVE else 3]):
            data = home.copy(kind_of(number))
            what = change(generator, number, data)
            assert home.starts(data).brief == did.starts, what


def _check_random_changes(server: str, generator: str, numbers: range) -> None:
    _needs(server)
    results = Counter[str]()
    with home_of(server, own_logs=False) as home:
        for number in numbers:
            data = home.copy(kind_of(number))
            what = change(generator, number, data)
            said, did = predicted(data), home.starts(data)
            result = verdict(said, did.brief)
            assert result != "wrong", (kind_of(number), number, what, said, did)
            results[result] += 1
    assert results["right"] >= 0.8 * len(numbers)


@pytest.mark.nightly
@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("server", SERVERS)
def test_no_start_with_many_random_changes_is_predicted_wrongly(server: str, generator: str) -> None:
    _check_random_changes(server, generator, range(100_000, 100_150))


# -- files of others ---------------------------------------------------------------------------------------------------


@pytest.mark.full_corpus
def test_a_log_of_mysql_5_5_whose_older_file_still_has_the_in_use_flag_is_no_damage(
    corpus: Path, tmp_path: Path
) -> None:
    """Servers before 5.6 never clear it: 202 of 1,189 whole files of one directory have it."""
    folder = shutil.copytree(corpus / "found-3/mysql55-crashed-older-file", tmp_path / "log")
    report = binlogtool.verify([folder])
    assert [one.severity.name for file in report.files for one in file.findings if one.id == "unclean-close"] == [
        "NOTE"
    ]
    assert binlogtool.diagnose([folder]).logs[0].is_healthy


@pytest.mark.full_corpus
def test_no_list_of_files_is_offered_where_a_file_between_others_is_missing(corpus: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(corpus / "found-3/next-command-refused", tmp_path / "log")
    (one,) = binlogtool.diagnose([folder]).logs
    assert not any("--fix-meta" in (step.command or "") for step in list_steps(one))


def test_the_logs_of_the_recorded_starts_are_small() -> None:
    assert sum(path.stat().st_size for path in LOGS.rglob("*") if path.is_file()) < 120_000


# -- a log that was torn, and whose server started again ---------------------------------------------------------------


def test_a_mariadb_log_that_was_torn_and_went_on_with_the_same_gtid_is_no_alarm(tmp_path: Path) -> None:
    """MariaDB 10.11 used 0-1-15 again after the crash, and listed 0-1-3 as the newest of the files before."""
    folder = shutil.copytree(LOGS / "mariadb-10.11/restarted", tmp_path / "log")
    (one,) = binlogtool.diagnose([folder]).logs
    assert one.is_healthy and one.start == "yes"
    (replayed,) = binlogtool.replay([folder])
    assert replayed.position["gtid"] == "0-1-16" and replayed.stop is None


def test_its_torn_end_is_cut_once_where_the_file_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(LOGS / "mariadb-10.11/restarted", tmp_path / "log")
    plan = binlogtool.plan_truncate(folder / "bin.000003")
    assert not plan.refused and plan.files[0].result_size == 993
    binlogtool.apply_plan(plan)
    again = binlogtool.plan_truncate(folder / "bin.000003")
    assert again.changes == ()
    (report,) = [one for one in binlogtool.verify([folder]).files if one.path.endswith("bin.000003")]
    assert {one.severity.name for one in report.findings} == {"NOTE"}


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_wrong_key_makes_no_file_missing(corpus: Path, tmp_path: Path) -> None:
    source = corpus / "mysql-binlog/generated/mariadb-10.11/encrypted"
    key = tmp_path / "keys"
    key.write_text(re.sub(r"(?m)[0-9a-fA-F]{8}$", "0" * 8, (source / "keys.txt").read_text()))
    report = binlogtool.verify([source], hints=Hints(keyfile=key.read_bytes()))
    assert report.failures
    findings = [one for part in (*report.files, *report.sets) for one in part.findings]
    assert [one.id for one in findings if one.id == "missing-member"] == []


GTID_NUMBERS = {
    0: "1-14", -1: "1-14", (1 << 63) - 1: "1-14", (1 << 63) - 2: f"1-14:{(1 << 63) - 2}",
}  # fmt: skip
"""Number in the last GTID -> numbers that MySQL 9.7 had after a crash: it does not decode others, and stops there."""


@pytest.mark.parametrize(("number", "did"), GTID_NUMBERS.items())
def test_mysql_ends_its_log_before_a_gtid_with_an_impossible_number(number: int, did: str, tmp_path: Path) -> None:
    folder = logs_of("mysql-9", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    at = log.find(33)[-1]
    body = log.events[at].body
    (folder / "bin.000003").write_bytes(log.with_body(at, body[:17] + struct.pack("<q", number) + body[25:]).write())
    start, gtids, _ = predict(folder)
    assert (start, gtids) == ("YY", f"{UUID}:{did}")


@pytest.mark.parametrize(
    ("damaged", "gtids"),
    [(False, f"{UUID}:1-14"), (True, f"{UUID}:1-12:14,7f3437ef-ea83-11f1-ac2f-02fc00000001:13")],
)
def test_mysql_ends_its_log_before_a_statement_without_text(damaged: bool, gtids: str, tmp_path: Path) -> None:
    """MySQL 9.7 started, although an XID outside of a transaction follows, and left the file at 1,037 bytes."""
    folder = logs_of("mysql-9", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    changed = log.with_inserted(log.find(16)[2] + 1, Event(2, query(b"")), Event(16, struct.pack("<Q", 99)))
    data = bytearray(changed.write())
    data[500] ^= 4 * damaged
    (folder / "bin.000003").write_bytes(data)
    assert predict(folder)[:2] == ("YY", gtids)
    (one,) = binlogtool.diagnose([folder]).logs
    assert one.replays[0].details["crash_recovery"]["cut_at"] == 1037


@pytest.mark.parametrize("place", [12, 22])
def test_mysql_stops_at_any_set_of_gtids_of_its_newest_log_that_it_cannot_decode(place: int, tmp_path: Path) -> None:
    """MySQL 9.7 aborted without a reason in its log: after the second transaction, and at the end."""
    folder = logs_of("mysql-9", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    assert log.events[place - 1].code == 16
    changed = log.with_inserted(place, Event(35, struct.pack("<Q", 18)))
    (folder / "bin.000003").write_bytes(changed.write())
    assert predict(folder).start == "n"


INTERVALS = {
    "descending": ((5, 9), (1, 3)), "from 0": ((0, 9),), "adjacent": ((1, 3), (3, 5)), "empty": ((4, 4),),
    "negative": ((-5, -2),), "possible": ((1, 3), (5, 9)),
}  # fmt: skip
PLACES = {("bin.000001", 1): "n", ("bin.000002", 1): "YY", ("bin.000003", 1): "n", ("bin.000003", 12): "n"}
"""Log and number of the PREVIOUS_GTIDS with impossible intervals -> did MySQL 9.7 start?"""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("intervals", INTERVALS)
@pytest.mark.parametrize("kind", KINDS)
def test_mysql_decodes_no_set_of_gtids_whose_intervals_do_not_ascend(
    kind: str, intervals: str, place: tuple[str, int], tmp_path: Path
) -> None:
    folder, (name, number) = logs_of("mysql-9", kind, "intact", tmp_path / "log"), place
    log, pairs = Log.read((folder / name).read_bytes()), INTERVALS[intervals]
    body = struct.pack("<q", 1) + b"\x11" * 16 + struct.pack("<q", len(pairs))
    body += b"".join(struct.pack("<qq", *pair) for pair in pairs)
    changed = log.with_body(1, body) if number == 1 else log.with_inserted(number, Event(35, body))
    (folder / name).write_bytes(changed.write())
    assert predicted(folder) == ("YY" if intervals == "possible" else PLACES[place])
    (report,) = (one for one in binlogtool.verify([folder]).files if one.path.endswith(name))
    found = [one.offset for one in report.findings if one.facts.get("diagnosis") == "gtid-interval"]
    at = 4 + sum(23 + len(event.body) for event in log.events[:number])
    assert found == ([] if intervals == "possible" else [at])


@pytest.mark.parametrize("number", [12, 22])
def test_mysql_adds_a_second_set_of_gtids_to_what_it_has_read(number: int, tmp_path: Path) -> None:
    """MySQL 9.7 had both after a crash: the set was after the second transaction, and at the end."""
    folder = logs_of("mysql-9", "crashed", "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    body = struct.pack("<q", 1) + b"\x11" * 16 + struct.pack("<qqqqq", 2, 1, 3, 5, 9)
    (folder / "bin.000003").write_bytes(log.with_inserted(number, Event(35, body)).write())
    assert predict(folder)[:2] == ("YY", f"11111111-1111-1111-1111-111111111111:1-2:5-8,{UUID}:1-15")


MIXED_NAMES = {
    ("./", "./"): "YY",
    ("", ""): "YY",
    (".//", ".//"): "YY",
    ("./", ""): "n",
    ("", "./"): "n",
    ("./", ".//"): "n",
}
"""Folders in the index before bin.000001 and before the others -> did MariaDB 10.11 start after a crash?"""


@pytest.mark.parametrize(("folders", "did"), MIXED_NAMES.items())
def test_mariadb_looks_up_the_first_log_of_its_recovery_by_the_spelling_of_the_last(
    folders: tuple[str, str], did: str, tmp_path: Path
) -> None:
    """Binlog file './bin.000001' not found in binlog index, needed for recovery. Aborting."""
    folder = logs_of("mariadb-10.11", "crashed", "intact", tmp_path / "log")
    first, others = folders
    (folder / "bin.index").write_text(f"{first}bin.000001\n{others}bin.000002\n{others}bin.000003\n")
    assert predicted(folder) == did


@pytest.mark.parametrize("number", [42012, 42055])
def test_mysql_reads_no_gtid_after_an_event_that_it_cannot_decode(number: int, tmp_path: Path) -> None:
    """MySQL 9.7 started: before the GTID was an XA_PREPARE with impossible lengths, or its own number was 2^63 - 1."""
    changed_logs_of("mysql-9", "contents", number, tmp_path / "log")
    assert predicted(tmp_path / "log") == "YY"


LOST_INDEXES = (
    "index-missing", "index-empty", "index-torn", "index-lacks-newest", "crash-safe-only", "index-blank-first",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("variant", LOST_INDEXES)
@pytest.mark.parametrize("server", SERVERS[:2])
def test_mariadb_without_its_newest_log_stops_if_innodb_holds_prepared_transactions(
    server: str, variant: str, tmp_path: Path
) -> None:
    """MariaDB 10.11 and 11.8 stopped (Found 3 prepared transactions!) and started where the engine held none."""
    for kind, did in (("crashed", DID[server]["crashed"][variant]), (PREPARED, "n")):
        folder = logs_of(server, kind, variant, tmp_path / kind)
        assert predicted(folder) == did
    (one,) = binlogtool.diagnose([folder]).logs
    assert "InnoDB holds prepared transactions (XID 18, 19, 20)" in one.replays[0].details["startup"]["why"]


@pytest.mark.parametrize("name", ["ib_logfile0", "ibdata1", "#rocksdb"])
def test_prepared_transactions_are_open_where_an_engine_cannot_be_read(name: str, tmp_path: Path) -> None:
    folder = logs_of("mariadb-10.11", "crashed", "index-empty", tmp_path / "log")
    if name.startswith("#"):
        (folder / name).mkdir()
    else:
        (folder / name).unlink()
    assert predicted(folder) == "?"


CHECKPOINT_CUTS = {256: "n", 299: "n", 336: "YY"}
"""Size of the newest log that MariaDB 10.11 and 11.8 opened -> did they start? The first BINLOG_CHECKPOINT ends at 336.

They logged the end of crash recovery, and then: Found 3 prepared transactions!
"""


@pytest.mark.parametrize(("size", "did"), CHECKPOINT_CUTS.items())
def test_mariadb_that_reads_no_checkpoint_stops_if_innodb_holds_prepared_transactions(
    size: int, did: str, tmp_path: Path
) -> None:
    for kind, expected in ((PREPARED, did), ("crashed", "YY")):
        folder = logs_of("mariadb-10.11", kind, "intact", tmp_path / kind)
        log = folder / "bin.000003"
        log.write_bytes(log.read_bytes()[:size])
        assert predicted(folder) == expected
    (tmp_path / PREPARED / "ib_logfile0").unlink()
    assert predicted(tmp_path / PREPARED) == ("?" if did == "n" else "YY")


def test_mariadb_before_10_6_decides_on_prepared_transactions_without_a_checkpoint(tmp_path: Path) -> None:
    """`TC_LOG_BINLOG::recover` of 10.0: without a BINLOG_CHECKPOINT it reads the last file only, and then decides."""
    folder = logs_of("mariadb-10.11", PREPARED, "intact", tmp_path / "log")
    log = Log.read((folder / "bin.000003").read_bytes())
    body = bytearray(log.events[0].body)
    body[2:52] = b"10.5.3-MariaDB-log".ljust(50, b"\0")
    (folder / "bin.000003").write_bytes(log.with_body(0, bytes(body)).write()[:299])
    assert predicted(folder) == "YY"


@pytest.mark.parametrize("variant", ["intact", "index-empty", "index-missing", "index-lacks-newest", "state-two"])
def test_mariadb_whose_log_lost_its_in_use_flag_stops_if_innodb_holds_prepared_transactions(
    variant: str, tmp_path: Path
) -> None:
    """MariaDB 10.11 (all) and 11.8 (the first): Found 3 prepared transactions!"""
    for kind, did in ((PREPARED, "n"), ("crashed", "Y")):
        folder = logs_of("mariadb-10.11", kind, variant, tmp_path / kind)
        log = folder / "bin.000003"
        data = bytearray(log.read_bytes())
        data[21] &= 0xFE
        log.write_bytes(data)
        assert predicted(folder)[0] == did


def test_the_in_use_flag_that_a_log_lost_can_be_set_again(tmp_path: Path) -> None:
    """MariaDB 10.11 then started twice, with the rows of all three prepared transactions."""
    folder = logs_of("mariadb-10.11", PREPARED, "intact", tmp_path / "log")
    log = folder / "bin.000003"
    data = bytearray(log.read_bytes())
    log.write_bytes(data[:21] + bytes([data[21] & 0xFE]) + data[22:])
    (one,) = binlogtool.diagnose([folder]).logs
    (command,) = [step.command for step in list_steps(one) if step.command is not None and " | dd " in step.command]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert log.read_bytes() == data and predicted(folder) == "YY"


def test_mysql_whose_log_lost_its_in_use_flag_rolls_prepared_transactions_back(tmp_path: Path) -> None:
    """MySQL 9.7 started with 7 rows of 8, and counted the GTID of the eighth; with the flag it had all."""
    folder = logs_of("mysql-9", PREPARED, "intact", tmp_path / "log")
    log = folder / "bin.000003"
    data = bytearray(log.read_bytes())
    assert binlogtool.diagnose([folder]).logs[0].losses == ()
    log.write_bytes(data[:21] + bytes([data[21] & 0xFE]) + data[22:])
    assert predicted(folder) == "YY"
    (one,) = binlogtool.diagnose([folder]).logs
    (loss,) = [found for _, found in one.losses]
    assert "rolls back the transactions that its engines hold as prepared" in loss.message
    (command,) = [step.command for step in list_steps(one) if step.command is not None and " | dd " in step.command]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert log.read_bytes() == data


def _gtid_event(number: int, *, is_standalone: bool) -> Event:
    return Event(162, struct.pack("<QIB", number, 0, 8 | is_standalone) + bytes(6))


LAST_EVENTS = {
    "statement": ((_gtid_event(16, is_standalone=True),), "0-1-16"),
    "transaction": ((_gtid_event(16, is_standalone=False),), "0-1-3"),
    "statement, transaction": ((_gtid_event(16, is_standalone=True), _gtid_event(17, is_standalone=False)), "0-1-3"),
    "transaction, statement": ((_gtid_event(16, is_standalone=False), _gtid_event(17, is_standalone=True)), "0-1-17"),
    "no older file, statement": (
        (Event(161, struct.pack("<I", 10) + b"bin.000003"), _gtid_event(16, is_standalone=True)),
        "0-1-15",
    ),
}
"""End of the newest log -> GTIDs of MariaDB 10.11 and 11.8 after a crash."""


@pytest.mark.parametrize(("events", "did"), LAST_EVENTS.values(), ids=LAST_EVENTS)
def test_the_first_event_of_the_older_files_ends_a_statement_without_a_transaction(
    events: tuple[Event, ...], did: str, tmp_path: Path
) -> None:
    for server in SERVERS[:2]:
        folder = logs_of(server, "crashed", "intact", tmp_path / server)
        log = Log.read((folder / "bin.000003").read_bytes())
        (folder / "bin.000003").write_bytes(log.with_inserted(len(log.events), *events).write())
        assert predict(folder)[:2] == ("YY", did)


def test_a_checkpoint_after_the_end_of_recovery_does_not_count(tmp_path: Path) -> None:
    """MariaDB 10.11 and 11.8 listed 0-1-3: they read the older files, as the last checkpoint that they read says."""
    for server in SERVERS[:2]:
        folder = logs_of(server, "crashed", "intact", tmp_path / server)
        log = Log.read((folder / "bin.000003").read_bytes())
        last = Event(161, struct.pack("<I", 10) + b"bin.000003")
        at = log.find(16)[1]
        data = bytearray(log.with_inserted(len(log.events), last).write())
        offset = 4 + sum(23 + len(event.body) for event in log.events[:at])
        assert data[offset + 4] == 16
        data[offset + 9 : offset + 13] = b"\xff\xff\xff\x7f"
        (folder / "bin.000003").write_bytes(data)
        assert predict(folder)[:2] == ("YY", "0-1-3")
