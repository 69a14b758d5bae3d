"""In a server's data directory nothing but proven logs is read, planned or changed."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.notify_progress_listener import SkippedFile
from binlogtool.core.resolve_paths import find_logs_in_directory
from binlogtool.errors import UnknownFormatError
from tests.cli.invoke import invoke
from tests.recovery.copies import hashes

ERRORS = b"2026-11-22  3:00:01 0 [Note] mariadbd: ready for connections.\nVersion: '10.11.14-MariaDB-log'\n" * 400
SLOW = b"# Time: 261122  3:00:02\n# User@Host: root[root] @ localhost []\nSELECT SLEEP(2);\n" * 50


def mariadb(folder: Path, samples: Path) -> set[str]:
    """Its logs, and what else is in such a directory; the names of the logs."""
    logs = {path.name for path in (samples / "mysql_binlog/sets/mariadb").iterdir()}
    for name in logs:
        shutil.copyfile(samples / "mysql_binlog/sets/mariadb" / name, folder / name)
    for name, content in {
        "slow.log": b"", "old-slow.log": SLOW, "error.log": ERRORS, "server.log": ERRORS[:70], "general.log": b"\n",
        "ib_logfile0": bytes(4096), "aria_log.00000001": bytes(8192), "aria_log_control": b"\xfe\xfe\x0c" + bytes(49),
        "ibdata1": bytes(12288), "db1.pid": b"4711\n", "mysql_upgrade_info": b"10.11.14-MariaDB\n",
        "tc.log": b"\xfe\x23\x05\x74" + bytes(24572), "notes.state": b"all well\n", "search.index": b"a b c\n",
        "install.run": b"#!/bin/sh\nServer: none\n", "backup.000001": b"PK\x03\x04" + bytes(400),
    }.items():  # fmt: skip
        (folder / name).write_bytes(content)
    return logs


def drizzle(folder: Path, samples: Path) -> set[str]:
    shutil.copyfile(samples / "drizzle/basic-checksum.log", folder / "transaction.log")
    for name, content in {
        "app.log": ERRORS,
        "empty.log": b"",
        "zeros.log": bytes(100_000),
        "drizzled.log": SLOW,
    }.items():
        (folder / name).write_bytes(content)
    return {"transaction.log"}


def tarantool(folder: Path, samples: Path) -> set[str]:
    logs = {path.name for path in (samples / "tarantool/chain").iterdir()}
    for name in logs:
        shutil.copyfile(samples / "tarantool/chain" / name, folder / name)
    for name, content in {"tarantool.log": ERRORS, "tarantool.pid": b"1", "setup.run": SLOW, "x.snap": SLOW}.items():
        (folder / name).write_bytes(content)
    return logs


def sphinx(folder: Path, samples: Path) -> set[str]:
    for name in ("binlog.meta", "binlog.001"):
        shutil.copyfile(samples / "manticore/sphinx-mixed" / name, folder / name)
    for name, content in {"searchd.log": ERRORS, "query.log": b"", "binlog.lock": b"", "rt.kill": b"\0"}.items():
        (folder / name).write_bytes(content)
    return {"binlog.meta", "binlog.001"}


Fill = Callable[[Path, Path], set[str]]
LAST = {
    mariadb: "rot-bin.000008",
    drizzle: "transaction.log",
    tarantool: "00000000000000000436.xlog",
    sphinx: "binlog.001",
}
FILLS = [pytest.param(fill, id=fill.__name__) for fill in LAST]


@pytest.mark.parametrize("fill", FILLS)
def test_only_proven_logs_take_part_in_a_data_directory(fill: Fill, tmp_path: Path, samples: Path) -> None:
    logs = fill(tmp_path, samples)
    others = {path.name for path in tmp_path.iterdir()} - logs
    report = binlogtool.verify([tmp_path])
    assert {Path(one.path).name for one in report.files} == logs
    assert {one.name for part in report.skipped for one in part.files} == others
    assert [one.severity.label for one in report.findings if one.severity.label == "error"] == []


@pytest.mark.parametrize("fill", FILLS)
def test_a_repair_of_a_data_directory_changes_the_torn_log_and_nothing_else(
    fill: Fill, tmp_path: Path, samples: Path
) -> None:
    fill(tmp_path, samples)
    torn = tmp_path / LAST[fill]
    with torn.open("ab") as file:
        file.write(torn.read_bytes()[-40:-9] if fill is not tarantool else b"\xd5\xba\x0b\xab\xd1")
    if fill is tarantool:  # what is behind its end mark is no torn row
        torn.write_bytes(torn.read_bytes()[:-11])
    before = hashes(tmp_path)
    result = invoke("truncate-to-durable", "--apply", "-y", str(tmp_path))
    after = hashes(tmp_path)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {torn.name}, result
    assert set(after) == set(before)
    assert result.code in (0, 5), result


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("words", [
    ("verify",), ("truncate-to-durable",), ("replay-dry-run",), ("dump",), ("stats",),
    ("truncate-to-durable", "--apply", "-y", "--fix-meta", "--allow-discard-valid", "--write-close-marker"),
], ids=" ".join)  # fmt: skip
def test_no_command_touches_what_is_no_log(fill: Fill, words: tuple[str, ...], tmp_path: Path, samples: Path) -> None:
    logs = fill(tmp_path, samples)
    before = {name: digest for name, digest in hashes(tmp_path).items() if name not in logs}
    result = invoke(*words, str(tmp_path))
    assert "error.log" not in result.text, result
    assert {name: digest for name, digest in hashes(tmp_path).items() if name in before} == before
    assert result.code in (0, 1, 5), result


def test_what_is_no_log_is_told_in_one_line_and_named_with_v(tmp_path: Path, samples: Path) -> None:
    drizzle(tmp_path, samples)
    (tmp_path / "link.log").symlink_to("transaction.log")
    os.mkfifo(tmp_path / "pipe.log")
    shutil.copyfile(tmp_path / "transaction.log", tmp_path / "old.txt.gz")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        for command in ("verify", "truncate-to-durable"):
            line = (
                "not logs: 4 files, 1 FIFO (not followed; name the file itself to read it), 1 compressed file, "
                "1 socket, 1 symbolic link (not followed; name the file itself to read it): app.log, drizzled.log, "
                "empty.log and 5 more (-v)"
            )
            assert [text for text in invoke(command, str(tmp_path)).text.splitlines() if "not logs" in text] == [line]
            told = invoke(command, "-v", str(tmp_path)).text
            assert f"  {tmp_path}/app.log\n" in told and f"  {tmp_path}/link.log  (symbolic link)\n" in told
            value = json.loads(invoke(command, "-O", "json", str(tmp_path)).out)
            (one,) = value["not_logs"]
            assert {"name": "pipe.log", "kind": "FIFO"} in one["files"] and len(one["files"]) == 8


@pytest.mark.parametrize(
    "words",
    [("dump",), ("stats",), ("replay-dry-run",), ("convert", "--to", "jsonl", "--output", "{out}")],
    ids=lambda words: words[0],
)
def test_whoever_reads_a_directory_tells_what_is_no_log(words: tuple[str, ...], tmp_path: Path, samples: Path) -> None:
    (home := tmp_path / "data").mkdir()
    drizzle(home, samples)
    line = [word.format(out=tmp_path / "out.jsonl") for word in words]
    told = invoke(*line, str(home), "--overwrite").err
    assert told.count("not logs: 4 files: app.log, drizzled.log, empty.log and 1 more (-v)\n") == 1
    assert told.count("app.log") == 1
    assert f"  {home}/app.log\n" in invoke(*line, str(home), "--overwrite", "-v").err
    assert "not logs" not in invoke(*line, str(home / "transaction.log"), "--overwrite").err


def test_a_file_of_proc_is_read_and_not_called_empty() -> None:
    result = invoke("verify", "/proc/self/status")
    assert result.code == 3
    assert "starts with 4e 61 6d 65" in result.err  # "Name"


def test_a_plan_that_would_keep_no_record_is_refused(tmp_path: Path, samples: Path) -> None:
    log = tmp_path / "error.log"
    log.write_bytes((samples / "drizzle/basic-checksum.log").read_bytes()[:40])
    for more in ((), ("--allow-discard-valid",), ("--format", "drizzle")):
        result = invoke("truncate-to-durable", "--apply", "-y", *more, str(log))
        assert (result.code, log.stat().st_size) == (5, 40), result
        assert "no record would be kept" in result.err
    assert invoke("truncate-to-durable", "--allow-empty-result", str(log)).code == 2
    assert invoke("truncate-to-durable", "-f", "drizzle", "--allow-empty-result", str(tmp_path)).code == 2
    forced = invoke("truncate-to-durable", "-f", "drizzle", "--allow-empty-result", "--apply", "-y", str(log))
    assert (forced.code, log.stat().st_size) == (0, 0), forced


def test_a_directory_of_text_is_no_log_whatever_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(ERRORS)
    (tmp_path / "slow.log").write_bytes(b"")
    (tmp_path / "00000000000000000001.xlog").write_bytes(SLOW)
    for more in ((), ("-f", "drizzle"), ("-f", "tarantool")):
        before = hashes(tmp_path)
        result = invoke("truncate-to-durable", "--apply", "-y", "--allow-discard-valid", *more, str(tmp_path))
        assert result.code == 3, result
        assert hashes(tmp_path) == before
    with pytest.raises(UnknownFormatError, match=r"no log files .* named like a log file, but not one: .*server\.log"):
        find_logs_in_directory(str(tmp_path), None)


def test_an_empty_newest_log_takes_part_only_beside_a_proven_one(tmp_path: Path, samples: Path) -> None:
    (first,) = (samples / "readme/intact").glob("*.xlog")
    shutil.copyfile(first, tmp_path / first.name)
    (tmp_path / "00000000000000009999.xlog").write_bytes(b"XLO")
    (tmp_path / "empty.xlog").write_bytes(b"")
    found = find_logs_in_directory(str(tmp_path), None)
    assert found.logs[0].names == [first.name, "00000000000000009999.xlog"]
    assert found.skipped == [SkippedFile("empty.xlog", "file")]


def test_a_file_with_a_log_s_name_and_nothing_of_it_is_an_error_and_is_never_changed(
    tmp_path: Path, samples: Path
) -> None:
    for path in (samples / "mysql_binlog/sets/mysql").iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    stray = tmp_path / "rot-bin.000008"
    stray.write_bytes(ERRORS)
    report = binlogtool.verify([tmp_path])
    assert stray not in {Path(one.path) for one in report.files}
    (found,) = [one for part in report.sets for one in part.findings if one.severity.label == "error"]
    assert (found.id, found.facts["file"]) == ("bad-header", stray.name)
    assert invoke("truncate-to-durable", "--apply", "-y", "--fix-meta", str(tmp_path)).code == 5
    assert stray.read_bytes() == ERRORS


def test_a_log_whose_head_is_lost_takes_part_by_the_records_in_it(tmp_path: Path, samples: Path) -> None:
    tarantool(tmp_path, samples)
    hurt = tmp_path / "00000000000000000227.xlog"
    hurt.write_bytes(bytes(5000) + hurt.read_bytes()[5000:])
    assert hurt.name in find_logs_in_directory(str(tmp_path), None).logs[0].names


def test_copies_under_other_names_are_left_out(tmp_path: Path, samples: Path) -> None:
    logs = mariadb(tmp_path, samples)
    for suffix in (".bak", ".old", ".1", "~", ".orig"):
        shutil.copyfile(tmp_path / "rot-bin.000004", tmp_path / f"rot-bin.000004{suffix}")
    (tmp_path / "lost+found").mkdir()
    shutil.copyfile(tmp_path / "rot-bin.000004", tmp_path / "lost+found" / "#12345")
    found = find_logs_in_directory(str(tmp_path), None)
    assert [set(one.names) for one in found.logs] == [logs]
    assert {"rot-bin.000004.bak", "lost+found/#12345"} <= {one.name for one in found.skipped}
