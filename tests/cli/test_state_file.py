"""`verify --state`: which results are remembered for which command line, torn lines, edited and hostile files."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from binlogtool.cli import run_verify_jobs
from binlogtool.cli.options import PATH
from binlogtool.cli.verify import command
from tests.cli.invoke import Result, invoke
from tests.cli.samples import damaged_log, plain_log
from tests.harness.mysql_writer import MARIADB, binlog, query, transaction

RELEVANT = {
    "format": ["-f", "drizzle"], "max_memory": ["--max-memory", "128MiB"], "max": ["--max", "record=1MiB"],
    "backend": ["--backend", "python"],
    "expect_closed": ["--expect-closed"], "live": ["--live"], "schema": ["--schema", "F"],
    "keyfile": ["--keyfile", "F"], "keyfile_secret": ["--keyfile", "F", "--keyfile-secret", "S"],
    "redo": ["--redo", "F"], "max_age": ["--max-age", "1000d"],
}  # fmt: skip
"""Every option that a result depends on, and how to give it."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "transaction.log").write_bytes(damaged_log())
    return tmp_path


def verify(folder: Path, *words: str) -> Result:
    return invoke("verify", "-v", "--state", str(folder / "state"), *words, str(folder / "transaction.log"))


def remembered(done: Result) -> bool:
    return "unchanged since it was verified" in done.err


def test_every_option_of_verify_is_either_relevant_or_named_as_irrelevant() -> None:
    names = {param.name for param in command.params}
    assert names == set(RELEVANT) | (run_verify_jobs.RESULT_NEUTRAL_OPTIONS - {"help"})


@pytest.mark.parametrize("option", [name for name in RELEVANT if name not in ("redo", "keyfile_secret")])
def test_a_result_is_not_remembered_for_another_command_line(logs: Path, option: str) -> None:
    (logs / "F").write_text("create table a(b int);" if option == "schema" else "1;" + "0" * 64)
    words = [str(logs / word) if word in ("F", "S") else word for word in RELEVANT[option]]
    assert not remembered(verify(logs))
    assert remembered(verify(logs))
    assert not remembered(verify(logs, *words)), "other options"
    assert remembered(verify(logs, *words))


@pytest.mark.parametrize("option", ["schema", "keyfile"])
def test_a_result_is_not_remembered_when_a_file_that_an_option_names_has_other_content(logs: Path, option: str) -> None:
    file = logs / "F"
    first, second = ("create table a(b int);", "create table a(c int);") if option == "schema" else (
        "1;" + "0" * 64, "1;" + "1" * 64)  # fmt: skip
    file.write_text(first)
    status = file.stat()
    words = [f"--{option}", str(file)]
    assert not remembered(verify(logs, *words)) and remembered(verify(logs, *words))
    file.write_text(second)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not remembered(verify(logs, *words))


def test_the_fingerprint_has_the_content_of_every_file_but_secrets(tmp_path: Path) -> None:
    """Of every option that names a file: another content, another fingerprint. Of a secret its time counts."""
    for param in command.params:
        if param.type is not PATH or param.name in run_verify_jobs.RESULT_NEUTRAL_OPTIONS:
            continue
        file = tmp_path / "file"
        prints = []
        for text in ("one", "two"):
            file.write_text(text)
            os.utime(file, ns=(0, len(prints) if param.name in run_verify_jobs.SECRET_OPTIONS else 0))
            prints.append(run_verify_jobs.fingerprint_options(command.params, {param.name or "": str(file)}))
        assert prints[0] != prints[1], param.name


def test_options_that_only_print_or_divide_the_work_keep_the_memory(logs: Path) -> None:
    verify(logs)
    for words in (
        ["-O", "json"],
        ["--fail-on", "never"],
        ["--severity", "checksum-mismatch=note"],
        ["--timeout", "1h"],
    ):
        assert remembered(verify(logs, *words)), words


def test_a_file_that_changes_in_a_directory_below_is_verified_again(tmp_path: Path) -> None:
    below = tmp_path / "logs" / "below"
    below.mkdir(parents=True)
    (below / "transaction.log").write_bytes(plain_log())
    words = ["verify", "-v", "--state", str(tmp_path / "state"), str(tmp_path / "logs")]
    invoke(*words)
    assert remembered(invoke(*words))
    (below / "transaction.log").write_bytes(damaged_log())
    assert not remembered(invoke(*words))


@pytest.mark.parametrize("cut", [1, 2, 30, 200, "all but one"])
def test_a_torn_last_line_is_cut_off_and_later_runs_work(logs: Path, cut: int | str) -> None:
    state = logs / "state"
    verify(logs)
    first = state.read_bytes()
    verify(logs, "--live")
    both = state.read_bytes()
    size = len(first) + 1 if isinstance(cut, str) else len(both) - cut
    state.write_bytes(both[:size])
    codes = []
    for _ in range(3):
        (logs / "transaction.log").touch()
        codes.append(verify(logs).code)
    assert codes == [1, 1, 1]
    lines = state.read_bytes().splitlines()
    assert state.read_bytes().endswith(b"\n") and lines[0] + b"\n" == first
    assert len(lines) == (5 if cut == 1 else 4) and all(json.loads(line) for line in lines)


def test_a_file_of_another_kind_without_a_line_end_is_not_changed(logs: Path) -> None:
    (logs / "state").write_text("my notes")
    assert verify(logs).code == 2
    assert (logs / "state").read_text() == "my notes"


ODD: tuple[Any, ...] = (
    None, -1, 1 << 80, 1.5, "x", "\ud800", "\0", [], {}, [[]], [None], {"a": 1}, [[1, 2, 3]], True, "9" * 5000,
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    found = []
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, inner in items:
        found += [(value, key), *places(inner)]
    return found


@pytest.mark.full
def test_an_edited_state_is_used_or_refused_in_one_line_and_never_an_internal_error(logs: Path) -> None:
    """Each member at every depth, replaced by values of other types, or removed."""
    rng = random.Random(33)
    state = logs / "state"
    verify(logs)
    good = state.read_text()
    count = len(places(json.loads(good)))
    assert count > 60
    refused = []
    for number in range(count):
        for odd in (*rng.sample(ODD, 3), KeyError):
            value = json.loads(good)
            container, key = places(value)[number]
            if odd is KeyError:
                del container[key]
            else:
                container[key] = odd
            state.write_text(json.dumps(value) + "\n")
            done = invoke("verify", "--state", str(state), str(logs / "transaction.log"))
            assert done.code in (0, 1, 2, 6), (key, odd, done.err)
            refused += [done.err] * (done.code == 2)
    assert len(refused) > 60 and all(text.count("\n") == 1 for text in refused)


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "5", '{"schema":' * 50_000, "\0", '{"a":' + "9" * 5000 + "}"])
@pytest.mark.parametrize("option", ["--state", "--baseline", "--config"])
def test_hostile_files_are_refused_in_one_line(logs: Path, option: str, text: str) -> None:
    file = logs / "file"
    file.write_text(text + "\n")
    done = invoke("verify", option, str(file), str(logs / "transaction.log"))
    assert done.code == 2 and done.err.count("\n") == 1


@pytest.mark.parametrize("text", ["a=" + "[" * 100_000, "max-memory=" + "9" * 5000, "verify=5",
                                  "jobs=[1,[2]]", "color=2020-01-01", "[verify]\nschema=[1]", "max-memory={}",
                                  "report=5",
                                  "[verify]\nfail-on=[[]]", "[verify.deep.er]\na=1", "format={a=1}",
                                  "timeout=inf", '[verify]\nkeyfile="a\\u0000b"', 'report=["json=\\u0000"]',
                                  '[verify]\nstate="\\u0000"'])  # fmt: skip
def test_odd_values_in_a_configuration_are_refused_in_one_line(logs: Path, text: str) -> None:
    (logs / "c.toml").write_text(text)
    done = invoke("verify", "--config", str(logs / "c.toml"), str(logs / "transaction.log"))
    assert done.code in (2, 4), done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["dump", "-j", "9" * 5000], ["dump", "--stop-position", "9" * 5000], ["dump", "-j", "record:" + "9" * 5000],
        ["dump", "-j", "record:" + "9" * 30], ["dump", "-j", "record:-1"], ["dump", "-j", "end-" + "9" * 5000],
        ["dump", "-j", "gtid:0-1-" + "9" * 5000],
        ["dump", "-j", "seq:" + "9" * 5000], ["dump", "-j", "0x" + "f" * 5000],
        ["--max-memory", "9" * 400 + "GiB", "dump"], ["--max-memory", "99999999TiB", "dump"],
        ["dump", "--max", "record=" + "9" * 30], ["dump", "--max", "inflate=" + "9" * 5000],
        ["dump", "--timeout", "9" * 5000],
        ["dump", "--start-datetime", "9" * 5000], ["dump", "--start-datetime", "-" + "9" * 5000 + "w"],
        ["dump", "--stop-datetime", "9" * 12], ["dump", "-n", "9" * 5000],
        ["dump", "--origin", "9" * 5000], ["verify", "--max-duration", "9" * 400],
        ["truncate-to-durable", "--max-loss", "9" * 5000], ["truncate-to-durable", "--max-loss-records", "9" * 5000],
        ["hexdump-annotate", "--at", "9" * 5000], ["hexdump-annotate", "--at", "0", "--length", "9" * 5000],
        ["replay-dry-run", "--until", "9" * 5000], ["replay-dry-run", "--explain", "9" * 5000],
        ["dump", "--where", "offset = " + "9" * 5000], ["hexdump-annotate", "--record", "9" * 5000],
    ],
)  # fmt: skip
def test_a_number_that_is_too_long_is_a_usage_error(logs: Path, words: list[str]) -> None:
    done = invoke(*words, str(logs / "transaction.log"))
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert len(done.err) < 6000


@pytest.mark.parametrize("words", [["--include-gtids", "0-1-" + "9" * 5000], ["--xid", "9" * 5000]])
def test_a_number_of_any_length_that_no_record_has_selects_none(logs: Path, words: list[str]) -> None:
    """Status 1: the log is damaged, as without the option."""
    done = invoke("dump", *words, str(logs / "transaction.log"))
    assert (done.code, done.out) == (1, b"")
    assert invoke("dump", str(logs / "transaction.log")).code == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--include-gtids", "0-1-" + "9" * 20 + "9" * 5000],
        ["--exclude-gtids", "9" * 5000 + "-1-1"],
        ["--xid", "0-1-" + "9" * 5000],
        ["--xid", "3e11fa47-71ca-11e1-9e33-c80aa9429562:" + "9" * 5000],
        ["--start-position", "gtid:0-1-" + "9" * 5000, "--stop-position", "gtid:0-1-" + "9" * 5000],
    ],
)
@pytest.mark.parametrize("command", ["dump", "rows", "stats"])
def test_a_gtid_whose_number_is_too_long_is_a_usage_error(tmp_path: Path, command: str, words: list[str]) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(transaction(query(b"select 1")), MARIADB))
    done = invoke(command, *words, str(log))
    assert (done.code, done.err.count("\n")) == (2, 1), done.err


def test_another_format_is_no_change_of_the_file(tmp_path: Path) -> None:
    """The bytes that a server rewrites differ by format; the file is the same."""
    log, state = tmp_path / "bin.000001", tmp_path / "state"
    log.write_bytes(binlog(transaction(query(b"select 1")), MARIADB))
    assert invoke("verify", "--state", str(state), str(log)).code == 0
    other = invoke("verify", "--state", str(state), "--format", "tarantool", str(log))
    assert other.code == 1 and "bad-header" in other.text and "changed-since-run" not in other.text
