"""`binlogtool replay-dry-run`: the contract of the command line, on the samples of real servers that ship with us."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from binlogtool.report.json_schema import SCHEMAS
from tests.cli.invoke import Result, invoke, program
from tests.cli.samples import plain_log, raw_sql
from tests.contract.json_schema import errors
from tests.formats.drizzle.make import insert, log, message

CLEAN = (
    "tarantool/chain",
    "manticore/v16-mixed",
    "manticore/sphinx-mixed",
    "drizzle/basic-checksum.log",
    "eblob/instance-a.binlog",
    "mysql_binlog/sets/mariadb",
    "mysql_binlog/sets/mysql",
)
STOPPED = (
    ("manticore/damaged/unknown-op", "binlog.0000", 4063),
    ("manticore/damaged/flip-payload", "binlog.0000", 4063),
    ("manticore/damaged/torn-mid-txn", "binlog.0000", 5465),
)


def dry_run(*words: str | Path) -> Result:
    return invoke("replay-dry-run", *map(str, words))


def document(*words: str | Path, name: str = "replay") -> dict[str, Any]:
    value = json.loads(dry_run("-O", "json", *words).out)
    assert errors(value, SCHEMAS[name]) == []
    assert isinstance(value, dict)
    return value


def decisions(*words: str | Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in dry_run("-O", "jsonl", *words).out.splitlines()]
    for line in lines:
        assert errors(line, SCHEMAS["decision"]) == []
    return lines


# -- shapes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLEAN)
def test_whole_logs_of_every_server_are_applied_and_end_with_status_0(samples: Path, name: str) -> None:
    done = dry_run("-O", "json", samples / name)
    value = json.loads(done.out)
    assert errors(value, SCHEMAS["replay"]) == []
    assert done.code == 0 and value["stops_at"] is None and value["decisions"]["rejected"] == 0
    assert len(value["digest"]) == 64 and value["policy"] == "server"


@pytest.mark.parametrize(("name", "file", "offset"), STOPPED)
def test_a_server_that_refuses_to_start_is_status_1_with_the_place(
    samples: Path, name: str, file: str, offset: int
) -> None:
    done = dry_run("-O", "json", samples / name)
    stop = json.loads(done.out)["stops_at"]
    assert done.code == 1
    assert (Path(stop["file"]).name, stop["offset"]) == (file, offset)
    text = dry_run(samples / name)
    assert text.code == 1 and "\nstarts    NO\n" in text.text and f"0x{offset:08x}: {stop['why']}" in text.text


@pytest.mark.parametrize("name", [*CLEAN, *(name for name, _, _ in STOPPED), "drizzle/damaged/zero-hole.log"])
def test_decisions_reasons_objects_and_lines_add_up_to_what_verify_counts(samples: Path, name: str) -> None:
    value, lines = document(samples / name), decisions(samples / name)
    verified = json.loads(invoke("verify", "-O", "json", str(samples / name)).out)["summary"]["records"]
    assert sum(value["decisions"].values()) == sum(value["reasons"].values()) == verified
    by_verb = Counter(line["decision"] for line in lines)
    assert {verb: by_verb[verb] for verb in value["decisions"]} == value["decisions"]
    assert dict(Counter(line["reason"] for line in lines)) == value["reasons"]
    objects = Counter((line["object"], line["decision"]) for line in lines if line["object"] is not None)
    told = {(one["name"], verb): one[verb] for one in value["objects"] for verb in value["decisions"] if one[verb]}
    assert told == dict(objects)
    for one in value["objects"]:
        applied = [line["seq"] for line in lines if (line["object"], line["decision"]) == (one["name"], "applied")]
        known = [seq for seq in applied if seq is not None]
        assert (one["first_seq"], one["last_seq"]) == ((known[0], known[-1]) if known else (None, None))


def test_the_text_has_each_part_of_the_report(samples: Path) -> None:
    shown = dry_run(samples / "tarantool/chain").text.splitlines()
    assert shown[0].endswith("tarantool/chain  (tarantool, policy server)")
    assert shown[1:3] == ["starts    yes", "decisions applied 949 · skipped 0 · rejected 0"]
    assert 'position  {"vclock": {"0": 43, "1": 393}}' in shown
    assert any(line.startswith("digest    ") for line in shown)
    assert shown[-1] == 'detail    snapshot  "00000000000000000000.snap"'


def test_several_logs_are_reported_one_by_one(samples: Path) -> None:
    one, two = samples / "drizzle/basic-checksum.log", samples / "eblob/api-sync.binlog"
    lines = [json.loads(line) for line in dry_run("-O", "json", one, two).out.splitlines()]
    assert [line["path"] for line in lines] == [str(one), str(two)]
    assert [line["format"] for line in lines] == ["drizzle", "eblob"]
    assert dry_run(one, samples / "manticore/damaged/unknown-op").code == 1


# -- status ------------------------------------------------------------------------------------------------------------


def test_wrong_uses_are_status_2(samples: Path, plain: Path) -> None:
    wrong: tuple[tuple[str | Path, ...], ...] = (
        (), ("-",), ("--policy", "lenient", plain), ("--until", "nonsense", plain), ("--until", "page:2", plain),
        ("--explain", "what", plain), ("--explain", "99", plain), ("--compare", plain, "-O", "jsonl", plain),
        ("--compare", plain, "--no-digest", plain), ("--compare", plain, "--explain", "1", plain),
        ("--against", samples / "eblob/README.md", plain), ("-O", "csv", plain),
    )  # fmt: skip
    for words in wrong:
        done = dry_run(*words)
        assert (done.code, done.out) == (2, b""), (words, done)
        assert done.err.startswith("binlogtool: ") and "Traceback" not in done.err


def test_a_silent_loss_is_status_1(samples: Path) -> None:
    done = dry_run("-O", "json", samples / "readme/intact")
    value = json.loads(done.out)
    assert done.code == 1 and value["decisions"]["applied"] == 0
    assert {found["id"] for found in value["findings"]} == {"silent-loss"}


def test_a_rejected_transaction_is_status_1(tmp_path: Path) -> None:
    path = tmp_path / "rejected.log"
    path.write_bytes(log(message(1, insert(), end=0), message(1, insert(), segment=3)))
    assert document(path)["reasons"] == {"segments-missing": 2}
    assert dry_run(path).code == 1


def test_missing_files_are_status_4_and_unknown_ones_are_refused(tmp_path: Path, samples: Path) -> None:
    assert dry_run(tmp_path / "nowhere").code == 4
    assert dry_run("--against", tmp_path / "nowhere", samples / CLEAN[0]).code == 4
    (tmp_path / "text").write_bytes(b"no log at all, but some bytes\n")
    done = dry_run(tmp_path / "text")
    assert done.code in (3, 4) and "no known log format" in done.err


def test_a_transaction_that_fits_into_no_memory_ends_with_one_line_and_status_6(tmp_path: Path) -> None:
    path = tmp_path / "open.log"
    path.write_bytes(log(*(message(number, insert(), end=0) for number in range(1, 4_000))))
    done = program("replay-dry-run", "--max-memory", "16KiB", str(path))
    assert done.returncode == 6 and done.stdout == b""
    assert done.stderr.count(b"\n") == 1 and b"more than --max-memory (16,384 bytes) allows" in done.stderr


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_applied_twice(samples: Path, tmp_path: Path, name: str) -> None:
    report = tmp_path / "report.json"
    before = dry_run("-O", "json", samples / name)
    report.write_bytes(before.out)
    again = document("--against", report, samples / name)
    assert again["decisions"]["applied"] == 0
    report.write_text(json.dumps(json.loads(before.out)["position"]))
    assert document("--against", report, samples / name)["decisions"] == again["decisions"]


@pytest.mark.parametrize(
    ("position", "name"),
    [
        ("record:50", "tarantool/chain/00000000000000000111.xlog"),
        ("seq:120", "tarantool/chain/00000000000000000111.xlog"),
        ("0x800", "tarantool/chain/00000000000000000000.xlog"),
        ("00000000000000000111.xlog:2000", "tarantool/chain"),
        ("end-1KiB", "drizzle/basic-checksum.log"),
        ("gtid:1-2-30", "mysql_binlog/sets/mariadb"),
        ("rot-bin.000005:1394", "mysql_binlog/sets/mariadb"),
        ("record:10", "eblob/api-sync.binlog"),
        ("binlog.0000:2000", "manticore/v16-mixed"),
    ],
)
def test_until_takes_every_kind_of_position(samples: Path, position: str, name: str) -> None:
    whole = sum(document(samples / name)["decisions"].values())
    value = document("--until", position, samples / name)
    lines = decisions("--until", position, samples / name)
    assert sum(value["decisions"].values()) == whole
    assert value["reasons"]["until"] == whole - sum(line["reason"] != "until" for line in lines) > 0
    assert value["decisions"]["applied"] > 0 and value["stops_at"] is None
    assert not any(found["id"] == "silent-loss" for found in value["findings"])
    if position.startswith("record:"):
        assert len([line for line in lines if line["reason"] != "until"]) == int(position[7:])


def test_a_replay_that_ends_early_leaves_the_position_of_its_end(samples: Path) -> None:
    """By `tarantoolctl cat`: row 124 of replica 1 and row 13 of replica 0 are the last ones before byte 2000."""
    value = document("--until", "00000000000000000111.xlog:2000", samples / "tarantool/chain")
    lines = decisions("--until", "2000", samples / "tarantool/chain/00000000000000000111.xlog")
    assert value["position"] == {"vclock": {"0": 13, "1": 124}}
    assert lines[-1]["offset"] < 2000 <= lines[-1]["offset"] + 200


def test_a_sequence_number_ends_the_whole_replay_at_the_first_record_that_has_it(samples: Path) -> None:
    """By `tarantoolctl cat`: 513 rows of the snapshot, 164 rows of the logs before the first one with LSN 150; rows of
    replica 0 with lower numbers stand behind it. Rows of the snapshot, which have numbers too, are loaded all."""
    value = document("--until", "seq:150", samples / "tarantool/chain")
    assert value["reasons"] == {"snapshot": 513, "new": 157, "control": 7, "until": 272}
    assert value["position"] == {"vclock": {"0": 15, "1": 149}}


@pytest.mark.parametrize(
    ("position", "rows"),
    [("seq:150", 164), (f"{'0' * 20}.xlog:record:10", 10), (f"{'0' * 20}.xlog:0", 0), ("record:10", 436), ("0", 436)],
)
def test_a_snapshot_is_loaded_whole_wherever_the_log_ends(samples: Path, position: str, rows: int) -> None:
    """The numbers of rows of the first log are those of `tarantoolctl cat`; the last log has no rows: a place that
    names no file lies in that one."""
    value = document("--until", position, samples / "tarantool/chain")
    assert value["reasons"]["snapshot"] == 513
    assert value["decisions"]["applied"] == 513 + rows
    assert value["starts"] is True and value["stops_at"] is None


@pytest.mark.parametrize("position", ["100", "record:3", "seq:3", "end-20"])
def test_a_position_inside_of_a_snapshot_is_refused(samples: Path, position: str) -> None:
    done = dry_run("--until", f"00000000000000000000.snap:{position}", samples / "tarantool/chain")
    assert (done.code, done.out) == (2, b"") and "whole or not at all" in done.err


@pytest.mark.parametrize("name", CLEAN)
def test_the_report_says_what_force_means_for_the_server(samples: Path, name: str) -> None:
    shown = dry_run("--policy", "force", samples / name).text.splitlines()
    told = document("--policy", "force", samples / name)["details"]["force"]
    assert len(told) > 20 and shown[1] == f"force     {told}"
    assert "force" not in document(samples / name).get("details", {})


def test_a_state_can_be_reached_in_two_steps(samples: Path, tmp_path: Path) -> None:
    log, state = samples / "mysql_binlog/sets/mariadb", tmp_path / "state.json"
    whole = document(log)
    first = document("--until", "gtid:1-2-30", log)
    state.write_text(json.dumps(first))
    second = document("--against", state, log)
    assert first["decisions"]["applied"] + second["decisions"]["applied"] == whole["decisions"]["applied"]
    assert second["position"] == whole["position"]


def test_policies_change_where_the_server_ends(samples: Path) -> None:
    log = samples / "tarantool/chain"
    assert document("--policy", "force", log)["decisions"] == document(log)["decisions"]
    strict = document("--policy", "strict", samples / "drizzle/damaged/zero-hole.log")
    verified = json.loads(invoke("verify", "-O", "json", str(samples / "drizzle/damaged/zero-hole.log")).out)
    errors = [one["offset"] for one in verified["files"][0]["findings"] if one["severity"] == "error"]
    assert strict["policy"] == "strict" and strict["stops_at"]["offset"] == min(errors)
    assert set(strict["reasons"]) >= {"not-reached"}


def test_compare_tells_equal_states_from_different_ones(samples: Path, tmp_path: Path) -> None:
    one, other = samples / "drizzle/basic-checksum.log", samples / "drizzle/mixed-checksum.log"
    copy = tmp_path / "copy.log"
    copy.write_bytes(one.read_bytes())
    same = document("--compare", copy, one, name="compare")
    assert same["equal"] is True and same["differs"] == []
    done = dry_run("-O", "json", "--compare", other, one)
    value = json.loads(done.out)
    assert errors(value, SCHEMAS["compare"]) == []
    assert done.code == 1 and value["equal"] is False and value["differs"]
    assert dry_run("--compare", copy, one).code == 0
    assert "end with the same state" in dry_run("--compare", copy, one).text
    assert "differ in" in dry_run("--compare", other, one).text


def test_explain_finds_a_record_by_its_number_and_file(samples: Path) -> None:
    log = samples / "tarantool/chain"
    shown = dry_run("--explain", "00000000000000000111.xlog:3", log)
    assert shown.code == 0
    assert shown.text.splitlines()[1] == "applied  new" and "record 3 at 0x0000016e: REPLACE a" in shown.text
    single = log / "00000000000000000111.xlog"
    assert dry_run("--explain", "3", single).text == dry_run("--explain", "record:3", single).text
    value = json.loads(dry_run("-O", "json", "--explain", "3", single).out)
    assert (value["record"], value["decision"], value["reason"]) == (3, "applied", "new") and value["rule"]


def test_without_the_digest_all_else_is_equal(samples: Path) -> None:
    for name in CLEAN:
        full, short = document(samples / name), document("--no-digest", samples / name)
        assert short["digest"] is None
        assert all(short[member] == full[member] for member in ("decisions", "reasons", "position", "stops_at"))


def test_hostile_names_reach_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "hostile\x1b[31m.log"
    path.write_bytes(plain_log(1) + raw_sql(2, b"create table x\x1b]0;title\x07 (a int)"))
    done = dry_run(path)
    assert done.code == 0 and b"\x1b" not in done.out and b"\x07" not in done.out
    for option in (("--explain", "1"), ("--compare", path)):
        assert b"\x1b" not in dry_run(*option, path).out
