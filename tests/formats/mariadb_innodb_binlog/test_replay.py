"""What servers do with a log: what the real reader and the real recovery did with the same files is the oracle."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import UsageError
from binlogtool.findings import Severity
from binlogtool.format_api.format import Hints
from binlogtool.formats.mariadb_innodb_binlog.format import FORMAT
from binlogtool.formats.mariadb_innodb_binlog.replay import parse_server_state
from tests.export import classic_binlog as classic
from tests.export.ibb_writer import IbbWriter
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mariadb_innodb_binlog import ibb_make as make

CRASHES, DAMAGED, SAMPLES = range(15), range(22), range(10)
CLASSIC = "mysql-binlog/generated"
TWINS = (
    "mariadb-10.11/rotated-set", "mariadb-10.11/row-metadata-full", "mariadb-10.11/mixed-ddl", "mariadb-11.8/xa",
    "mariadb-11.8/domains", "mariadb-11.8/alter-two-phase", "mariadb-11.8/savepoint-nontrans-row",
    "mariadb-11.8/compressed-events", "mariadb-11.8/stmt", "mariadb-11.8/row-full-types",
)  # fmt: skip
NOT_READ = {
    "page4k": "no server and no tool reads pages of 4,096 bytes",
    "flush-exact-end": "the shipped reader passes over the second file",
}
"""Samples of which a reader takes less than is there; policy force takes all."""
READ_WITHOUT_GTIDS = {"damaged/d11-stale-page": "the recorded reader does not look at GTIDs; the whole tool stops here"}

HEADER_LOST = ("damaged/d04-header-zeroed", "damaged/d18-page-size")
"""The pages behind a wrong header have the usual size: more is readable than its words allow."""
OTHER_ORDER = ("damaged/d09-pages-swapped", "damaged/d13-renamed")
"""Groups in another order: one comes when its domain is already past it."""


def replayed(path: Path, redo: Path | None = None, **options: Any) -> Any:
    hints = None if redo is None else Hints(redo=str(redo))
    [one] = binlogtool.replay([path], format=options.pop("format", logs.FORMAT), hints=hints, **options)
    return one


def applied(path: Path, redo: Path | None = None, **options: Any) -> tuple[Any, list[str]]:
    """The replay, and the GTIDs of the groups that are applied."""
    made: list[Any] = []
    one = replayed(path, redo, on_decision=made.append, **options)
    unread = one.decisions["skipped"] - sum(d.verb == "skipped" for d in made)
    assert sum(one.decisions.values()) == len(made) + unread == sum(one.reasons.values())
    assert unread >= 0 and (not unread or one.stop is not None or one.policy == "strict" or options.get("until"))
    assert set(one.reasons) <= {*FORMAT.replay.reasons, "not-reached", "until"}  # type: ignore[union-attr]
    return one, [d.txn for d in made if d.type == "GTID" and d.verb == "applied"]


def losses(one: Any) -> list[Any]:
    return [found for _, found in one.findings if found.id == "silent-loss"]


def sample_of(corpus: Path, index: int) -> tuple[str, Path, Any]:
    case = logs.manifest(corpus)["samples"][index]
    return case["dir"], corpus / logs.FORMAT / "generated" / case["dir"], case["facts"]


# -- whole logs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", SAMPLES)
def test_every_group_of_a_sample_is_applied_in_its_order_and_the_end_is_where_the_server_finds_it(
    corpus: Path, index: int
) -> None:
    name, path, facts = sample_of(corpus, index)
    one, gtids = applied(path, policy="force" if name in NOT_READ else "server")
    assert gtids == [group["gtid"] for group in facts["event_groups"] if group["gtid"]]
    assert sum(one.decisions.values()) == sum(len(group["events"]) for group in facts["event_groups"])
    assert one.stop is None and one.starts is True
    end = one.details["restart"]
    if name != "page4k":
        assert {"file": int(end["file"][7:13]), "offset": end["offset"]} == facts["end_of_log"]
        assert not end["inside_record"]


def test_no_server_reads_pages_of_another_size(corpus: Path) -> None:
    one, gtids = applied(corpus / logs.FORMAT / "generated/page4k")
    assert gtids == [] and one.stop.offset == 0 and one.reasons == {"not-reached": 44}


def test_the_file_behind_one_that_was_flushed_exactly_full_is_lost_without_a_word(corpus: Path) -> None:
    one, gtids = applied(corpus / logs.FORMAT / "generated/flush-exact-end")
    assert gtids == ["0-11-1"] and one.stop is None and one.reasons["unseen"] == 26
    [loss] = losses(one)
    assert loss.facts["gtids"] == ["0-11-2", "0-11-3", "0-11-4"]


def test_a_prepared_transaction_waits_and_the_state_has_the_groups_before_the_log(corpus: Path) -> None:
    generated = corpus / logs.FORMAT / "generated"
    restart = replayed(generated / "xa").details["restart"]
    assert restart["xa_prepared"] == ["X'70656e6430',X'7132',7"]
    assert restart["xa_known_as"] == ["X'70656e6430',X'6e64',7"], "bytes 2 and 3 of pend0q2"
    restart = replayed(generated / "bigstate").details["restart"]
    full = logs.manifest(corpus)["samples"][4]["facts"]["gtid_states"][0]["gtids"]
    assert {*full[:3], "0-11-7", "7-11-3"} <= set(restart["gtid"].split(","))
    assert replayed(generated / "bigstate").position == {"gtid": "0-11-7,7-11-3"}


# -- the same transactions in another container ------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("size", [None, 3000])
@pytest.mark.parametrize("index", SAMPLES)
def test_the_state_is_that_of_the_converted_log(corpus: Path, tmp_path: Path, index: int, size: int | None) -> None:
    name, path, _ = sample_of(corpus, index)
    policy = "force" if name in NOT_READ else "server"
    out = tmp_path / "out"
    binlogtool.convert([path], "mysql-binlog", f"{out}/", selection=Selection(on_damage="skip"), max_binlog_size=size)
    mine, other = replayed(path, policy=policy), replayed(out, format="mysql-binlog", policy=policy)
    assert mine.digest == other.digest
    assert mine.decisions["applied"] == other.decisions["applied"]
    assert mine.position["gtid"] == other.position["gtid"]


@pytest.mark.parametrize("name", TWINS)
def test_the_state_is_that_of_the_binary_log_of_a_real_server(corpus: Path, tmp_path: Path, name: str) -> None:
    source = corpus / CLASSIC / name
    found = sorted(path for path in source.iterdir() if path.suffix[1:].isdigit())
    log = IbbWriter(tmp_path / "ibb", pages=8, interval=2)
    count = 0
    for group in (one for path in found for one in classic.groups(classic.events(path, exact=False))):
        domain, origin, seq = map(int, group.gtid.split("-"))
        log.group((domain, origin, seq), [event.bare() for event in group.events], (None, 700)[count % 2], 0)
        count += 1
    log.close()
    mine, other = replayed(tmp_path / "ibb"), replayed(source, format="mysql-binlog")
    assert count and mine.digest == other.digest
    assert mine.position["gtid"] == other.position["gtid"]
    assert {o.name: (o.keys, o.digest) for o in mine.objects} == {o.name: (o.keys, o.digest) for o in other.objects}


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", DAMAGED)
def test_as_many_groups_are_applied_as_the_real_reader_took_and_it_stops_where_that_stopped(
    corpus: Path, tmp_path: Path, index: int
) -> None:
    variant = logs.manifest(corpus)["damaged"][index]
    folder = logs.damaged(corpus, tmp_path / "log", variant)
    one, gtids = applied(folder)
    real, whole = variant["real_offline_reader"], variant["groups_intact_if_everything_readable_is_used"]
    assert (one.stop is None) == (real["exit"] == 0)
    if variant["dir"] in READ_WITHOUT_GTIDS:
        assert len(gtids) == real["groups_read_equal_to_base"] - 1 and one.reasons["out-of-order"] == 1
    else:
        assert len(gtids) == real["groups_read_equal_to_base"]
    assert set(gtids) <= set(whole)


TORN = "damaged/d21-incomplete-tail"
"""The tail of a crash, which the server cuts at its next start."""
SILENT = {"damaged/d05-missing-middle", "damaged/d06-cut-odd", "damaged/d07-cut-page", "damaged/d22-tail-first-byte"}
"""The real reader ends without an error, and groups are missing."""


@pytest.mark.parametrize("index", DAMAGED)
def test_what_is_missing_and_not_told_is_a_silent_loss(corpus: Path, tmp_path: Path, index: int) -> None:
    variant = logs.manifest(corpus)["damaged"][index]
    one, gtids = applied(logs.damaged(corpus, tmp_path / "log", variant))
    silent = one.stop is None and len(gtids) < variant["groups_in_base"] and variant["dir"] != TORN
    assert silent == (variant["dir"] in SILENT)
    assert bool(losses(one)) == (variant["dir"] in SILENT | {"damaged/d08-hole"})  # the hole hides what follows it
    missing = [numbers for loss in losses(one) for numbers in loss.facts.get("missing_gtids", {}).values()]
    for [[low, high]] in missing:
        assert [f"0-11-{number}" for number in range(low, high + 1)] == [
            gtid for gtid in variant["groups_not_intact"] if gtid.startswith("0-11-")
        ]


@pytest.mark.parametrize("index", DAMAGED)
def test_force_applies_every_group_that_is_intact(corpus: Path, tmp_path: Path, index: int) -> None:
    variant = logs.manifest(corpus)["damaged"][index]
    one, gtids = applied(logs.damaged(corpus, tmp_path / "log", variant), policy="force")
    assert one.stop is None
    intact = set(variant["groups_intact_if_everything_readable_is_used"])
    if variant["dir"] in OTHER_ORDER:
        assert set(gtids) == intact - {"0-11-6"} and one.reasons["out-of-order"]
    elif variant["dir"] in HEADER_LOST:
        assert set(gtids) > intact
    else:
        assert set(gtids) == intact


def test_a_page_whose_first_byte_is_lost_is_written_over_at_the_next_start(corpus: Path, tmp_path: Path) -> None:
    variant = next(v for v in logs.manifest(corpus)["damaged"] if v["dir"].endswith("d22-tail-first-byte"))
    one = replayed(logs.damaged(corpus, tmp_path / "log", variant))
    [loss] = losses(one)
    assert loss.facts["situation"] == "restart" and loss.offset == variant["where"][2]


def test_the_first_error_ends_a_strict_replay(corpus: Path, tmp_path: Path) -> None:
    variant = next(v for v in logs.manifest(corpus)["damaged"] if v["dir"].endswith("d20-oob-count"))
    folder = logs.damaged(corpus, tmp_path / "log", variant)
    one, gtids = applied(folder, policy="strict")
    assert one.stop.offset == variant["where"][2]
    assert gtids == ["0-11-1", "0-11-2", "0-11-3", "0-11-4", "0-11-5", "0-11-6"]


# -- restart with the redo log -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", CRASHES)
def test_with_the_redo_log_the_groups_are_those_that_real_recovery_left(
    corpus: Path, tmp_path: Path, index: int
) -> None:
    case = logs.manifest(corpus)["crash_cases"][index]
    folder, redo = logs.crashed(corpus, tmp_path, case)
    one, gtids = applied(folder, redo)
    real, told = case["real_recovery"], one.details["redo"]
    assert gtids + told["gtids_gained"] == real["groups_after"]
    assert (told["gtids_gained"], told["gtids_lost"]) == (case["groups_gained"], case["groups_lost"])
    assert told["removed"] == real["files_removed"]
    assert one.starts is (real["exit"] == 0) and one.stop is None
    restart = one.details["restart"]
    if real["end_of_log"] is None:
        assert restart["gtid"] is None and any("missing" in loss.message for loss in losses(one))
        return
    assert {"file": int(restart["file"][7:13]), "offset": restart["offset"]} == real["end_of_log"]
    assert restart["inside_record"] == bool(real["problems_after"])
    lasts = {gtid.partition("-")[0]: gtid for gtid in real["groups_after"]}
    assert restart["gtid"] == ",".join(lasts[domain] for domain in sorted(lasts))
    cut = [loss.facts.get("gtids_lost") for loss in losses(one) if loss.severity is Severity.WARNING]
    assert cut == ([case["groups_lost"]] if case["groups_lost"] else [])


NOTHING_KEPT = ("crash/c05-torn-partial", False)
"""Without the redo log no record of it is whole."""


@pytest.mark.full
@pytest.mark.parametrize("index", CRASHES)
def test_the_state_is_the_same_before_and_after_a_repair(corpus: Path, tmp_path: Path, index: int) -> None:
    case = logs.manifest(corpus)["crash_cases"][index]
    for with_redo in (False, True):
        folder, redo = logs.crashed(corpus, tmp_path / str(with_redo), case)
        used = redo if with_redo else None
        reading = {"format": logs.FORMAT, "hints": None if used is None else Hints(redo=str(used))}
        plan = binlogtool.plan_truncate(folder, **reading)
        assert plan.refused == (case["dir"] == "crash/c15-file-missing" or (case["dir"], with_redo) == NOTHING_KEPT)
        if plan.refused:
            continue
        before = replayed(folder, used)
        binlogtool.apply_plan(plan, **reading)
        after, gtids = applied(folder, used)
        if with_redo and case["groups_gained"]:
            assert gtids == case["real_recovery"]["groups_after"]
            assert before.position["gtid"] != after.position["gtid"] == before.details["restart"]["gtid"]
        else:
            assert (before.digest, before.position) == (after.digest, after.position)
        assert after.reasons.get("never-durable", 0) == 0


def test_without_the_active_file_the_server_begins_anew_and_does_not_say_what_is_gone(
    corpus: Path, tmp_path: Path
) -> None:
    folder, _ = logs.crashed(corpus, tmp_path, logs.manifest(corpus)["crash_cases"][14])
    one = replayed(folder)
    [loss] = losses(one)
    assert loss.facts["situation"] == "restart"
    assert one.details["restart"] == {"new_log": "binlog-000000.ibb", "gtid": None} and not one.is_clean


def test_a_redo_log_that_the_server_refuses_keeps_it_down(corpus: Path, tmp_path: Path) -> None:
    folder, redo = logs.crashed(corpus, tmp_path, logs.manifest(corpus)["crash_cases"][1])
    data = bytearray(redo.read_bytes())
    data[4096:12288] = bytes(8192)  # both checkpoint blocks
    redo.write_bytes(data)
    one = replayed(folder, redo)
    assert one.starts is False and "redo" in one.details["redo"]["why"]
    assert "restart" not in one.details


# -- a server that has a part of it ------------------------------------------------------------------------------------


def test_what_a_replica_has_is_skipped_and_both_halves_make_the_whole(corpus: Path, tmp_path: Path) -> None:
    path = corpus / logs.FORMAT / "generated/basic"
    whole = replayed(path)
    one, gtids = applied(path, against={"gtid": "0-11-30,3-99-5"})
    assert set(one.reasons) == {"committed", "statement", "executed"}
    _, all_of_them = applied(path)
    had = [g for g in all_of_them if (g.startswith("0-11-") and int(g[5:]) <= 30) or g.startswith("3-99-")]
    assert sorted(gtids) == sorted(set(all_of_them) - set(had))
    assert one.position == whole.position
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"position": {"gtid": "0-11-30,3-99-5"}}))
    assert replayed(path, against=state).decisions == one.decisions
    state.write_text("0-11-30,3-99-5\n")
    assert replayed(path, against=state).decisions == one.decisions
    assert replayed(path, against=whole.position).reasons == {"executed": sum(whole.decisions.values())}


def test_a_replica_that_is_too_far_behind_is_refused(corpus: Path, tmp_path: Path) -> None:
    folder = logs.copied(corpus / logs.FORMAT / "generated/basic", tmp_path / "log")
    (folder / "binlog-000000.ibb").unlink()
    one, gtids = applied(folder, against={"gtid": "0-11-10"})
    assert gtids == [] and "lacks" in one.stop.why and one.starts is False
    one, gtids = applied(folder, against={"gtid": "0-11-29,3-99-5,7-11-5"})
    assert one.stop is None and gtids


def test_a_state_is_a_position_of_mariadb() -> None:
    assert parse_server_state("binlog.state", b"0-1-7\n0-2-9\n4-1-3\n") == {"gtid": "0-2-9,4-1-3"}
    assert parse_server_state("x", b"4806e0cc-e55c-11f1-8d64-02fc00000001:1-6") is None
    assert parse_server_state("x", b"\x00\xff garbage") is None and parse_server_state("x", b"") is None


def test_a_file_alone_has_the_groups_that_begin_in_it_and_a_text_that_is_no_position_is_refused(corpus: Path) -> None:
    _, path, facts = sample_of(corpus, 0)
    one, gtids = applied(path / "binlog-000001.ibb")
    assert gtids == [group["gtid"] for group in facts["event_groups"] if group["file"] == 1]
    assert "restart" not in one.details
    with pytest.raises(UsageError, match="position"):
        replayed(path, against={"gtid": "no position"})


# -- forged logs -------------------------------------------------------------------------------------------------------


def ending_early(pages: int, group: int, reserve: bool = True) -> dict[str, bytes]:
    """Three files of small groups; the first one has zeros behind `pages` data pages."""
    made = make.Maker(file_pages=4, interval=0)
    number = 0
    while made.number < 3:
        number += 1
        made.commit(make.group(number, group), (0, 11, number))
    files = made.done(reserve)
    data = files["binlog-000000.ibb"]
    files["binlog-000000.ibb"] = data[: (pages + 1) * 16384].ljust(len(data), b"\0")
    return files


def test_where_a_file_ends_inside_a_record_the_reader_joins_it_with_the_next_one_and_the_loss_is_told(
    tmp_path: Path,
) -> None:
    one, gtids = applied(logs.written(tmp_path / "log", ending_early(1, 60)))
    numbers = [int(gtid.rpartition("-")[2]) for gtid in gtids]
    first = next(i for i, number in enumerate(numbers) if number != i + 1)
    [loss] = losses(one)
    [[low, high]] = loss.facts["missing_gtids"]["0-11"]
    assert (low, high) == (first + 1, numbers[first] - 1)
    assert "joins parts of two groups into one wrong group" in loss.message
    assert loss.facts["situation"] == "apply" and one.stop is None


@pytest.mark.parametrize("goes_on", [False, True])
def test_where_a_file_ends_between_records_the_reader_goes_on_unless_the_next_one_begins_inside_one(
    tmp_path: Path, goes_on: bool
) -> None:
    made = make.Maker(file_pages=4, interval=0)
    for number in range(1, 9):
        long = goes_on and number == 7
        made.commit(make.group(number, made.room if long else 60), (0, 11, number))
        if number in (2, 4) or (number == 6 and not goes_on):
            made.record(make.DUMMY, b"\xff" * (made.room - 3))  # the page is full
    files = made.done()
    data = files["binlog-000000.ibb"]
    files["binlog-000000.ibb"] = data[: 2 * 16384].ljust(len(data), b"\0")
    one, gtids = applied(logs.written(tmp_path / "log", files))
    assert gtids[:2] == ["0-11-1", "0-11-2"]
    if goes_on:
        assert gtids == ["0-11-1", "0-11-2"] and one.stop.offset == 16384
    else:
        [loss] = losses(one)
        assert one.stop is None and gtids[2:] == ["0-11-7", "0-11-8"]
        assert loss.facts["missing_gtids"] == {"0-11": [[3, 6]]}


def test_files_of_two_servers_do_not_pass_for_one_log(corpus: Path, tmp_path: Path) -> None:
    generated = corpus / logs.FORMAT / "generated"
    folder = logs.copied(generated / "flush", tmp_path / "log")
    for number in (1, 2, 3, 4):
        name = f"binlog-{number:06d}.ibb"
        (folder / name).write_bytes((generated / "basic" / name).read_bytes())
    one, gtids = applied(folder)
    assert not one.is_clean and one.stop.file.endswith("binlog-000001.ibb")
    assert gtids == ["0-11-1", "0-11-2", "0-11-3", "0-11-4"]


def test_random_bytes_in_a_log_make_a_result_and_never_a_traceback(tmp_path: Path) -> None:
    rng = random.Random(7)
    base = ending_early(3, 900)
    for trial in range(12):
        files = dict(base)
        for _ in range(rng.randrange(1, 6)):
            name = rng.choice(sorted(files))
            data = bytearray(files[name])
            at = rng.randrange(len(data))
            data[at : at + 9] = rng.randbytes(9)
            files[name] = bytes(data[: len(data) - rng.choice((0, 0, 0, 1, 16384))])
        path = logs.written(tmp_path / str(trial), files)
        for policy in ("server", "strict", "force"):
            _, gtids = applied(path, policy=policy)
            assert len(set(gtids)) == len(gtids)


def test_what_a_server_does_with_a_directory_that_is_named_like_a_log_is_open(samples: Path, tmp_path: Path) -> None:
    log = samples / "mariadb-innodb-binlog" / "dbase" / "binlog-000000.ibb.gz"
    (tmp_path / log.stem).write_bytes(gzip.decompress(log.read_bytes()))
    assert replayed(tmp_path).starts is True
    (tmp_path / "binlog-000001.ibb").mkdir()
    found = replayed(tmp_path)
    assert found.starts is None
    assert found.details["startup"]["not_checked"] == ["not checked: binlog-000001.ibb is a directory, not a file"]
