"""`diagnose` says what the real servers did, and its steps, pasted one after the other, do what they say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import UnknownFormatError
from binlogtool.findings import Severity
from binlogtool.repair import diagnose_startup
from binlogtool.repair.diagnose_startup import OPEN, REFUSES, STARTS
from tests.cli.invoke import invoke
from tests.formats.mariadb_innodb_binlog import ibb_logs
from tests.formats.mysql_binlog import newer_servers
from tests.formats.mysql_binlog.repaired import put
from tests.recovery.damaged_logs import LEAST, cases, content, written
from tests.sampling import EXHAUSTIVE, take_sample


def diagnosed(*paths: Path | str, code: int | None = None) -> dict[str, Any]:
    result = invoke("diagnose", "-O", "json", *map(str, paths))
    assert result.code in ((0, 1, 5, 6) if code is None else (code,)), result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


# -- against the real servers ------------------------------------------------------------------------------------------


def _tarantool(corpus: Path, tmp_path: Path) -> Iterator[tuple[str, Path, bool]]:
    """(name, directory, did Tarantool 2.6 come up on it?) What it met later, when asked for rows, is no start."""
    root = corpus / "tarantool" / "generated"
    said = {
        f"{kind}/{one['case']}": "main F> fatal error" in (start := one["tarantool_2_6"]["start"]).get("stderr", "")
        or start["started"]
        for kind in ("damaged", "damaged_vinyl")
        for one in json.loads((root / kind / "manifest.json").read_text())["cases"]
    }
    for name, files in cases(corpus, "tarantool"):
        yield name, written(files, tmp_path / name), said[name]


def _searchd(root: Path) -> Iterator[tuple[str, Path, bool]]:
    """The same of Manticore and Sphinx."""
    for one in json.loads((root / "manifest.json").read_text())["damaged"]:
        if "server_started" in one.get("server_says", {}) and (root / "damaged" / one["name"]).is_dir():
            yield one["name"], root / "damaged" / one["name"], one["server_says"]["server_started"]


def _binlog(corpus: Path, samples: Path, tmp_path: Path, *, mysql: bool) -> Iterator[tuple[str, Path, bool]]:
    """The same of MariaDB 11.8 and MySQL 9.7, as `newer_servers.py` recorded it: each log the only one, and in use."""
    record = json.loads((samples / "mysql_binlog/repaired-on-newer-servers.json").read_text("utf-8"))
    entries = next(entries for server, entries in record.items() if server.startswith("MySQL" if mysql else "MariaDB"))
    said = {one["case"]: one["damaged"]["started"] for one in entries}
    for number, case in enumerate(newer_servers.cases(corpus, mysql=mysql)):
        yield case.name, put(case, tmp_path / str(number)).parent, said[case.name]


SERVERS = {"tarantool": 70, "v14": 1, "v15": 9, "v16": 37, "sphinx": 20, "mariadb": 41, "mysql": 35}
"""Damaged directories of which it is recorded whether the server started."""
SAVED = {"flip-in-flushed-table"}
"""What the server does depends on what it has saved of its tables, and that does not stand in a log."""


@pytest.mark.full
@pytest.mark.parametrize("server", SERVERS)
def test_it_says_of_every_damaged_directory_whether_the_server_starts(
    corpus: Path, samples: Path, tmp_path: Path, server: str
) -> None:
    if server in ("mariadb", "mysql"):
        told = list(_binlog(corpus, samples, tmp_path, mysql=server == "mysql"))
    elif server == "tarantool":
        told = list(_tarantool(corpus, tmp_path))
    else:
        told = list(_searchd(corpus / ("sphinx/generated" if server == "sphinx" else f"manticore/generated/{server}")))
    wrong = []
    for name, folder, started in told:
        try:
            found = [one.start for one in binlogtool.diagnose([folder]).logs]
        except UnknownFormatError:  # nothing is left in it that is a log: nothing stops the server
            found = [OPEN]
        right = {STARTS, OPEN} if started else {REFUSES}
        if (len(found) != 1 or found[0] not in right) and name not in SAVED:
            wrong.append((name, found, started))
    print(f"\ndiagnose {server}: {len(told) - len(wrong)} of {len(told)} starts told right; {wrong}")
    assert len(told) >= SERVERS[server] and not wrong


READERS = {"eblob": ("exit", 37), "drizzle": ("sql_exit", 25)}
"""Where the exit status of the engine's own reader is recorded, and of how many damaged logs."""


def _stops(*paths: Path | str) -> bool:
    """Does `diagnose` say that the engine's reader does not get to the end of the log?"""
    try:
        (one,) = binlogtool.diagnose(paths).logs
    except UnknownFormatError:  # no byte of a header is left: there is nothing that a reader could begin with
        return True
    return one.start == REFUSES or any(replayed.stop is not None for replayed in one.replays)


@pytest.mark.full
@pytest.mark.parametrize("format", READERS)
def test_it_says_of_every_damaged_log_whether_the_reader_of_its_engine_gets_to_the_end(
    corpus: Path, format: str
) -> None:
    (status, count), root = READERS[format], corpus / format / "generated"
    damaged = json.loads((root / "manifest.json").read_text("utf-8"))["damaged"]
    wrong = [name for name, case in damaged.items() if _stops(root / name) != (case["real_reader"][status] != 0)]
    print(f"\ndiagnose {format}: {len(damaged) - len(wrong)} of {len(damaged)} readers told right; {wrong}")
    assert len(damaged) == count and not wrong


@pytest.mark.full
def test_it_says_of_every_damaged_ibb_log_whether_mariadb_reads_it_to_the_end(corpus: Path, tmp_path: Path) -> None:
    damaged = ibb_logs.manifest(corpus)["damaged"]
    wrong = []
    for number, case in enumerate(damaged):
        folder = ibb_logs.damaged(corpus, tmp_path / str(number), case)
        if _stops(folder) != (case["real_offline_reader"]["exit"] != 0):
            wrong.append(case["dir"])
    print(f"\ndiagnose .ibb: {len(damaged) - len(wrong)} of {len(damaged)} readers told right; {wrong}")
    assert len(damaged) == 22 and not wrong


@pytest.mark.full
def test_it_says_of_every_crashed_ibb_log_that_mariadb_recovers_it(corpus: Path, tmp_path: Path) -> None:
    """Each as it stands in a data directory: the redo log beside the logs."""
    crashed = ibb_logs.manifest(corpus)["crash_cases"]
    wrong = []
    for case in crashed:
        folder, _ = ibb_logs.crashed(corpus, tmp_path / Path(case["dir"]).name, case)
        (one,) = binlogtool.diagnose([folder.parent]).logs
        if (one.start == STARTS) != (case["real_recovery"]["exit"] == 0):
            wrong.append((case["dir"], one.start, one.incomplete_reason))
    print(f"\ndiagnose .ibb: {len(crashed) - len(wrong)} of {len(crashed)} recoveries told right; {wrong}")
    assert len(crashed) == 15 and not wrong


def test_the_redo_log_is_read_and_named_in_every_step_unless_a_server_has_it_open(corpus: Path, tmp_path: Path) -> None:
    case = next(one for one in ibb_logs.manifest(corpus)["crash_cases"] if one["dir"] == "crash/c01-disk-ahead")
    folder, redo = ibb_logs.crashed(corpus, tmp_path / "data", case)
    (one,) = diagnosed(folder, code=1)["logs"]
    assert one["redo"] == str(redo) and one["start"] == STARTS
    assert [loss["facts"]["gtids_lost"] for loss in one["losses"]] == [case["groups_lost"]]
    own = [text for step in one["steps"] if (text := step["command"] or "").startswith("binlogtool truncate-to-")]
    assert own and all(f"--redo {redo}" in text for text in own)
    with _another_has_it_open(redo):
        assert diagnosed(folder)["logs"][0]["redo"] is None


def test_the_server_is_looked_for_again_before_a_problem_is_reported(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server between two files of its log has none open; its log is then read as often as any log in use."""
    (intact,) = (samples / "readme/intact").glob("*.xlog")
    log = tmp_path / intact.name
    log.write_bytes(intact.read_bytes().replace(b"\xd5\xba\x0b\xab", bytes(4), 1))  # the first block has no marker
    looks = iter([None, "tarantool (process 1)"])
    monkeypatch.setattr(diagnose_startup, "_find_process_writing_newest_file", lambda path, format: next(looks))
    monkeypatch.setattr(diagnose_startup, "PASS_INTERVAL", 0)
    (damaged,) = binlogtool.diagnose([log]).logs
    assert (damaged.holder, damaged.live) == ("tarantool (process 1)", True)
    monkeypatch.setattr(diagnose_startup, "_find_process_writing_newest_file", lambda path, format: None)
    (damaged,) = binlogtool.diagnose([log]).logs
    assert (damaged.holder, damaged.live, damaged.is_healthy) == (None, False, False)


@contextlib.contextmanager
def _another_has_it_open(path: Path) -> Iterator[None]:
    other = subprocess.Popen(
        [sys.executable, "-c", f"file = open({str(path)!r}, 'r+b'); input()"], stdin=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 60
        while str(path) not in {os.path.realpath(fd) for fd in Path(f"/proc/{other.pid}/fd").iterdir()}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield
    finally:
        other.kill()
        other.communicate()


# -- the steps ---------------------------------------------------------------------------------------------------------


def pasted(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A command line as a shell would run it, in the directory; --yes where it would ask."""
    expanded = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], cwd=folder, capture_output=True, check=True
    ).stdout.split(b"\0")[:-1]
    words = [word.decode() for word in expanded]
    if words[0] != "binlogtool":
        return subprocess.run(words, cwd=folder, check=False).returncode
    monkeypatch.chdir(folder)
    return invoke(*words[1:], *(["--yes"] if "--apply" in words else [])).code


MENDED = {"tarantool": 19, "drizzle": 15, "manticore": 28, "sphinx": 13, "eblob": 12, "mysql-binlog": 18,
          "mariadb-innodb-binlog": 0}  # fmt: skip
"""Damaged logs that the steps put right, in place or by a copy. (Each .ibb log without its redo log is left alone.)"""
SAMPLED = ("tarantool", "manticore", "sphinx", "mysql-binlog")
"""Formats with so many damaged logs that a sample has some of each kind."""


@pytest.mark.full
@pytest.mark.parametrize("format", LEAST)
def test_the_steps_can_be_pasted_one_after_the_other(
    corpus: Path, quick_folder: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    ends: Counter[str] = Counter()
    every = 6 if format in SAMPLED else 1
    for number, (name, files) in enumerate(take_sample(cases(corpus, format), every), 1):
        folder = written(files, quick_folder / str(number) / "data")
        monkeypatch.chdir(folder.parent)  # steps name copies in the working directory
        log = folder / next(iter(files)) if len(files) == 1 else folder
        try:
            (one,) = binlogtool.diagnose([log]).logs
        except UnknownFormatError:
            continue
        (told,) = diagnosed(log)["logs"]
        assert content(folder) == files, name
        ends[_followed(told["steps"], one.is_healthy, folder, monkeypatch, name)] += 1
        if any("undo --apply" in (step["command"] or "") for step in told["steps"]):
            assert {k: v for k, v in content(folder).items() if k in files} == files, name
    print(f"\nsteps {format}: {dict(ends)}")
    assert ends["repaired"] + ends["salvaged"] >= (
        MENDED[format] // 12 if every > 1 and not EXHAUSTIVE else MENDED[format]
    )


def _followed(steps: list[dict[str, Any]], well: bool, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Does what the steps say; before the last, the log has no error."""
    assert well == (not steps), name
    if well:
        return "well"
    commands = [step["command"] for step in steps if step["command"]]
    mending = [text for text in commands if "--apply" in text or "--keep-after-damage" in text]
    for text in commands:
        undo = text.startswith("binlogtool undo")
        if undo:
            errors = [f for f in binlogtool.verify([folder]).findings if f.severity is Severity.ERROR]
            assert not errors, (name, errors)
        code = pasted(text, folder.parent, monkeypatch)
        clean = undo or text in mending or text.startswith(("cp ", "binlogtool verify --severity "))
        assert code in ((0,) if clean else (0, 1)), (name, text, code)
    if not mending:
        return "told"
    return "repaired" if "--apply" in mending[0] else "salvaged"


# -- what it looks like ------------------------------------------------------------------------------------------------


def test_all_is_well(samples: Path, tmp_path: Path) -> None:
    home = shutil.copytree(samples / "manticore" / "v16-mixed", tmp_path / "var" / "lib" / "a" / "b" / "c" / "one")
    before = content(tmp_path)
    text = invoke("diagnose", str(tmp_path))
    assert (text.code, text.text.count("\n")) == (0, 1) and text.text.startswith(f"ok        {home}  (")
    (one,) = diagnosed(tmp_path, code=0)["logs"]
    assert one["well"] and one["start"] in (STARTS, OPEN) and one["steps"] == [] and one["plan"] is None
    assert content(tmp_path) == before


def test_a_directory_with_several_homes_has_an_answer_for_each(samples: Path, tmp_path: Path) -> None:
    for name in ("intact", "torn-tail", "flipped-bit"):
        shutil.copytree(samples / "readme" / name, tmp_path / name)
    found = diagnosed(tmp_path, code=1)
    assert [Path(one["path"]).name for one in found["logs"]] == ["flipped-bit", "intact", "torn-tail"]
    assert found["summary"]["logs"] == 3 and found["summary"]["well"] == sum(one["well"] for one in found["logs"])
    flipped = found["logs"][0]
    assert not flipped["well"] and flipped["steps"][0]["command"].startswith("cp -a -- ")
    assert "binlogtool explain checksum-mismatch" in flipped["read"]


def test_the_text_fits_a_screen_and_a_ticket_holds_the_commands(samples: Path) -> None:
    log = str(samples / "readme" / "flipped-bit")
    lines = invoke("diagnose", log).text.splitlines()
    assert len(lines) <= 30
    assert {line.split()[0] for line in lines if line and line[0] != " "} == {
        "DAMAGED",
        "directory",
        "start",
        "loses",
        "keep",
        "do",
        "read",
    }
    markdown = invoke("diagnose", "-O", "markdown", log).text
    commands = [step["command"] for step in diagnosed(log)["logs"][0]["steps"] if step["command"] is not None]
    assert commands and all(f"\n{command}\n" in markdown for command in commands)


def test_the_names_of_files_are_quoted(samples: Path, tmp_path: Path) -> None:
    home = shutil.copytree(samples / "readme" / "flipped-bit", tmp_path / "it's `here`\n$(x)")
    steps = diagnosed(home)["logs"][0]["steps"]
    assert str(home) in subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {steps[0]['command']}"], capture_output=True, check=True, text=True
    ).stdout.split("\0")
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", invoke("diagnose", str(home)).text)


@pytest.mark.parametrize("form", ["absolute", "relative", "here"])
def test_every_step_names_paths_in_the_form_that_was_given(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    home = tmp_path / "var" / "sphinx"
    shutil.copytree(samples / "guides" / "sphinx-torn", home)
    monkeypatch.chdir(home if form == "here" else tmp_path)
    path = {"absolute": str(home), "relative": "var/sphinx", "here": "."}[form]
    (log,) = diagnosed(path)["logs"]
    commands = [step["command"] for step in log["steps"] if step["command"] is not None]
    beside = {"absolute": f"{home}.copy", "relative": "var/sphinx.copy", "here": "../sphinx.copy"}[form]
    assert commands == [
        f"cp -a -- {path} {beside}",
        f"binlogtool hexdump-annotate --at 0x271 {path}/binlog.001",
        f"binlogtool truncate-to-durable {path}",
        f"binlogtool truncate-to-durable --apply {path}",
        f"binlogtool replay-dry-run {path}",
        f"binlogtool undo --apply {path}/binlog.001.binlogtool-undo-*",
    ]


def test_what_is_no_log_is_status_3_and_standard_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("no log")
    nothing = invoke("diagnose", str(tmp_path))
    assert nothing.code == 3 and "no log of a known format in it or below it" in nothing.err
    assert invoke("diagnose", "-").code == 2 and invoke("diagnose").code == 2
    assert invoke("diagnose", str(tmp_path / "missing")).code == 4


def test_an_encrypted_log_is_unknown(corpus: Path) -> None:
    (log,) = _encrypted(corpus)
    found = diagnosed(log, code=6)
    assert found["logs"][0]["start"] == "unknown" and not found["logs"][0]["well"]
    assert any("--keyfile" in (step["command"] or "") for step in found["logs"][0]["steps"])


def _encrypted(corpus: Path) -> list[Path]:
    files = sorted(one for one in (corpus / "mysql-binlog" / "generated").rglob("*encrypt*/*") if one.is_file())
    return [one for one in files if re.search(r"bin\.\d+$", one.name)][:1]


def test_a_log_that_may_grow_is_read_to_a_consistent_end(samples: Path, tmp_path: Path) -> None:
    torn = tmp_path / "00000000000000000003.xlog"
    torn.write_bytes((samples / "guides" / "tarantool-torn" / torn.name).read_bytes())
    done = invoke("diagnose", "--live", str(torn))
    assert done.code == 0 and "read up to a consistent end (--live)" in done.text


def test_a_file_that_a_process_has_open_is_read_as_one_that_grows(samples: Path, tmp_path: Path) -> None:
    torn = tmp_path / "00000000000000000003.xlog"
    torn.write_bytes((samples / "guides" / "tarantool-torn" / torn.name).read_bytes())
    with torn.open("ab") as file, subprocess.Popen(["sleep", "60"], stdout=file) as server:
        try:
            (log,) = json.loads(invoke("diagnose", "-O", "json", str(torn)).out)["logs"]
        finally:
            server.kill()
    assert log["live"] and log["holder"] == f"sleep (process {server.pid})"


def test_the_verdict_is_red_and_the_directory_is_described(samples: Path) -> None:
    text = invoke("diagnose", "--color", "always", str(samples / "guides" / "sphinx-torn")).text
    assert "start     \x1b[31;1mNO\x1b[0m: it stops at binlog.001" in text
    assert re.search(r"^directory owner \S+:\S+, mode 0\d{3}, [\d.,]+ [KMGTP]?i?B free$", text, re.MULTILINE)


def test_the_words_for_states_are_those_of_verify(samples: Path) -> None:
    for name, word in {"tarantool-torn": "torn", "tarantool-flipped": "DAMAGED", "mariadb": "ok"}.items():
        log = str(samples / "guides" / name)
        verified = invoke("verify", log).text.splitlines()
        assert word in {line.split()[1] for line in verified if ".xlog" in line or "mariadb-bin.0" in line}
        assert any(line.startswith(f"{word} ") for line in invoke("diagnose", log).text.splitlines())


# -- a way on for every kind of damage ---------------------------------------------------------------------------------


def commands_of(log: dict[str, Any]) -> list[str]:
    return [step["command"] for step in log["steps"] if step["command"] is not None]


@pytest.mark.parametrize("case", ["flip_zstd_block", "torn_tail_mid_block"])
def test_logs_without_their_snapshot_are_not_started_before_it_is_back(corpus: Path, case: str) -> None:
    """Tarantool 2.6 creates a new, empty instance here, and reads no row."""
    (log,) = diagnosed(corpus / "tarantool/generated/damaged" / case, code=1)["logs"]
    whats = [step["what"] for step in log["steps"]]
    assert "do not start the server yet: restore the snapshot" in whats[1]
    assert log["why"].startswith("yes, as a new, empty instance") and whats.index("start the server") > 1


MISSING = {
    "mariadb-11.8": ("rot-bin.000005", r"1-2-30 to 1-2-36"),
    "mysql-9.7": ("rot-bin.000004", r"[0-9a-f-]{36}:27 to [0-9a-f-]{36}:34"),
}
"""The log that was deleted, and its transactions, as the server's own tool lists them for the intact log."""


@pytest.mark.parametrize("server", MISSING)
def test_a_missing_log_is_named_with_its_transactions_and_where_to_get_it(corpus: Path, server: str) -> None:
    folder, (name, lost) = corpus / "mysql-binlog/generated/damaged" / server / "set-missing-file", MISSING[server]
    (log,) = diagnosed(folder, code=1)["logs"]
    assert any(step["what"].startswith(f"copy {name} from a backup") for step in log["steps"])
    text = invoke("diagnose", str(folder)).text
    assert re.search(rf"^loses .*transactions {lost}$", text, re.MULTILINE)


@pytest.mark.parametrize("servers", ["mariadb-11.8", "mysql-9.7"])
def test_exchanged_logs_are_put_right_by_the_steps(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str
) -> None:
    root = corpus / "mysql-binlog/generated"
    folder = shutil.copytree(root / "damaged" / servers / "set-swapped", tmp_path / "log")
    (log,) = diagnosed(folder, code=1)["logs"]
    moves = [command for command in commands_of(log) if command.startswith("mv ")]
    assert len(moves) == 3 and not any("hexdump" in command for command in commands_of(log))
    for command in moves:
        assert pasted(command, tmp_path, monkeypatch) == 0
    assert _logs(folder) == _logs(root / servers / "rotated-set")
    assert diagnosed(folder, code=0)["logs"][0]["well"]


def _logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if re.fullmatch(r".*bin\.\d{6}", path.name)}


def test_the_replay_of_exchanged_logs_leads_to_their_names_and_not_to_a_repair_that_is_refused(corpus: Path) -> None:
    folder = corpus / "mysql-binlog/generated/damaged/mariadb-11.8/set-swapped"
    for command in ("replay-dry-run", "verify"):
        done = invoke(command, str(folder))
        (line,) = [text for text in done.text.splitlines() if text.startswith("next")]
        assert line.split(maxsplit=1)[1] == f"binlogtool diagnose {folder}"


def test_a_fault_of_the_index_is_not_looked_for_in_the_bytes_of_an_intact_log(corpus: Path) -> None:
    folder = corpus / "mysql-binlog/generated/damaged/mariadb-11.8/set-index-stale"
    (log,) = diagnosed(folder, code=1)["logs"]
    assert not any("hexdump" in command for command in commands_of(log))
    assert f"binlogtool truncate-to-durable --apply --fix-meta {folder}" in commands_of(log)
    assert f"next: binlogtool truncate-to-durable --fix-meta {folder}\n" in invoke("verify", str(folder)).text


@pytest.mark.parametrize("case", ["crc-zero-hole.bin", "crc-xid-removed.bin"])
def test_what_no_cut_repairs_is_written_as_sql(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    log = Path(shutil.copy(corpus / "mysql-binlog/generated/damaged/mariadb-11.8" / case, tmp_path))
    (one,) = diagnosed(log, code=1)["logs"]
    (command,) = [text for text in commands_of(one) if " convert " in text]
    assert "--on-damage skip" in command
    assert pasted(command, tmp_path, monkeypatch) in (0, 1)
    assert "orders2_all" in (tmp_path / f"{case}.sql").read_text("utf-8", "replace")


def test_no_command_is_listed_twice(corpus: Path) -> None:
    (log,) = diagnosed(corpus / "tarantool/generated/damaged/snap_torn", code=1)["logs"]
    commands = commands_of(log)
    assert len(set(commands)) == len(commands)
    assert any(step["what"].startswith("restore 00000000000000000000.snap") for step in log["steps"])


def test_an_undetermined_start_says_why_and_a_warning_is_shown(corpus: Path) -> None:
    root = corpus / "tarantool/generated"
    torn = invoke("diagnose", str(root / "damaged_vinyl/vylog_torn"))
    assert torn.code == 0 and "start cannot be determined from this log: no snapshot" in torn.text
    left = invoke("diagnose", str(root / "damaged/inprogress_left"))
    assert left.code == 0 and re.search(r"^warning   .*\.inprogress .*did not finish", left.text, re.MULTILINE)


def test_after_a_salvage_the_expected_findings_are_named(samples: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(samples / "guides/tarantool-flipped", tmp_path / "log")
    with (folder / "00000000000000000003.xlog").open("r+b") as file:
        file.seek(0x540)
        file.write(b"XXXX")  # more than one bit of LSN 23 is wrong
    (log,) = diagnosed(folder, code=1)["logs"]
    (step,) = [one for one in log["steps"] if " replay-dry-run " in (one["command"] or "")]
    assert "expected for LSN 23, with status 1" in step["what"]


def test_a_removed_empty_log_and_a_rewritten_index_are_named(corpus: Path, tmp_path: Path) -> None:
    rotated = corpus / "mysql-binlog/generated/mysql-9.7/rotated-set"
    folder = shutil.copytree(rotated, tmp_path / "log")
    (index,) = folder.glob("*.index")
    names = index.read_text().split()
    newest = Path(names[-1]).name
    number = int(newest.rpartition(".")[2]) + 1
    empty = f"{newest.rpartition('.')[0]}.{number:06}"
    (folder / empty).write_bytes(b"")
    index.write_text("".join(f"{name}\n" for name in [*names, str(Path(names[-1]).with_name(empty))]))
    text = invoke("diagnose", str(folder)).text
    assert f"{index.name} is corrected, {empty} is removed" in text


def test_nothing_of_an_encrypted_log_is_called_provable_without_its_key(corpus: Path) -> None:
    (log,) = _encrypted(corpus)
    text = invoke("diagnose", str(log)).text
    assert "keep      cannot be determined without the key" in text and "provable record" not in text


def test_a_server_version_that_decides_nothing_is_refused(samples: Path) -> None:
    for command in ("diagnose", "replay-dry-run"):
        done = invoke(command, "--server-version", "3.9", str(samples / "guides/mariadb"))
        assert done.code == 2 and "--server-version does not apply to mysql-binlog" in done.err
        assert invoke(command, "--server-version", "3.9", str(samples / "guides/tarantool-torn")).code == 0


# -- without a copy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "name", "text"),
    [
        (
            "mysql-binlog/generated/damaged/mariadb-11.8/crc-two-damages.bin",
            "bin.000001",
            "lost: transaction 1-2-7, transaction 1-2-17; move bin.000001 out of the directory",
        ),
        ("mysql-binlog/generated/damaged/mariadb-11.8/crc-bad-magic.bin", "bin.000001", "move bin.000001 out of"),
        (
            "tarantool/generated/damaged/header_uuid_other/00000000000000000227.xlog",
            "00000000000000000227.xlog",
            "the server starts empty, and 107 records are lost to it",
        ),
        (
            "tarantool/generated/damaged/removed_block/00000000000000000227.xlog",
            "00000000000000000227.xlog",
            "lost: LSN 250 of replica 1; ",
        ),
    ],
)
def test_the_steps_say_what_is_lost_without_a_copy(
    corpus: Path, tmp_path: Path, log: str, name: str, text: str
) -> None:
    """The numbers are those of the corpus: two damaged transactions, LSN 250 removed, 107 rows without a snapshot."""
    copy = Path(shutil.copy(corpus / log, tmp_path / name))
    if "two-damages" in log:  # one flipped bit in each of two events, which could be corrected
        with copy.open("r+b") as file:
            for event in (0x4677, 0xD0D6):
                file.seek(event + 30)
                file.write(b"XXXX")
    steps = [one["what"] for one in diagnosed(tmp_path)["logs"][0]["steps"]]
    assert any(step.startswith(f"only if no copy exists: {text}") for step in steps)


def test_a_cut_that_the_server_makes_itself_is_not_needed(corpus: Path, tmp_path: Path) -> None:
    """c01-disk-ahead: MariaDB truncates binlog-000000.ibb at its start (the corpus' manifest)."""
    (case,) = [one for one in ibb_logs.manifest(corpus)["crash_cases"] if "c01-disk-ahead" in one["dir"]]
    folder, _ = ibb_logs.crashed(corpus, tmp_path / "c01", case)
    steps = [one["what"] for one in diagnosed(folder)["logs"][0]["steps"]]
    assert steps[1].startswith("nothing needs to be done: the server does the same when it starts")
