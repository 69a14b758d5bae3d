"""Backups as a nightly job sees them: several servers, compressed files, files that are missing, cut or no logs."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from pathlib import Path

import pytest
import zstandard

from tests.cli.invoke import ROOT, Result, invoke

CORPUS = ROOT / "tests" / "corpus"
MARIADB = CORPUS / "guides" / "mariadb"
TARANTOOL = CORPUS / "tarantool" / "chain"
SPHINX = CORPUS / "manticore" / "v7-rotation"
NIGHTLY = ("verify", "--expect-closed", "--fail-on", "warning")


def compress(*paths: Path, suffix: str = ".gz") -> None:
    for path in paths:
        data = path.read_bytes()
        packed = gzip.compress(data) if suffix == ".gz" else zstandard.ZstdCompressor().compress(data)
        Path(f"{path}{suffix}").write_bytes(packed)
        path.unlink()


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def state_of(done: Result) -> tuple[list[str], list[str]]:
    """The decisions and the digests that a replay prints."""
    lines = done.text.splitlines()
    return tuple([line for line in lines if line.startswith(word)] for word in ("decisions", "digest"))  # type: ignore[return-value]


# --- A server whose logs are destroyed, beside one whose logs are intact ---


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mysql-bin.000001", bytes(1721)),
        ("00000000000000000003.xlog", bytes(3000)),
        ("binlog.001", b""),
        ("binlog-000000.ibb", bytes(range(255, 127, -1)) * 40),
        ("data-0.0.binlog", b"\xa5\x00\xff" * 700),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_server_without_an_intact_log_fails_the_check_of_its_parent(
    tmp_path: Path, name: str, content: bytes
) -> None:
    copy(MARIADB, tmp_path / "db1")
    (tmp_path / "db2").mkdir()
    lost = tmp_path / "db2" / name
    lost.write_bytes(content)
    reports = [tmp_path / f"report.{kind}" for kind in ("junit", "sarif", "gitlab", "markdown", "html", "json")]
    words = [f"--report={one.suffix[1:]}={one}" for one in reports]
    done = invoke(*NIGHTLY, "-q", *words, str(tmp_path / "db1"), str(tmp_path))
    assert done.code == 3 and f"{lost}: named like a log file" in done.err
    assert [one.name for one in reports if name not in one.read_text()] == []
    assert invoke("diagnose", str(tmp_path)).code == 3
    assert invoke("dump", str(tmp_path)).code == 6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("app.log.202601", b"2026-01-03 all is well \xc3\xa4\n" * 200),
        ("core.123456", b"\x7fELF\x02\x01\x01" + bytes(3000)),
        ("backup.000001", b"PK\x03\x04\xff" + bytes(400)),
        ("error.log", b""),
        ("notes.snap", b"exports[`renders 1`] = `ok`;\n"),
    ],
)
def test_what_is_no_log_by_its_content_is_no_alarm(tmp_path: Path, name: str, content: bytes) -> None:
    copy(MARIADB, tmp_path / "db1")
    (tmp_path / "db2").mkdir()
    (tmp_path / "db2" / name).write_bytes(content)
    assert invoke(*NIGHTLY, str(tmp_path)).code == 0


def test_links_named_like_logs_are_reported_unless_their_target_is_checked(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    (logs / "newest.000009").symlink_to("mariadb-bin.000002")
    assert invoke(*NIGHTLY, "-q", str(logs)).code == 0
    (logs / "rot-bin.000007").symlink_to("nowhere")
    done = invoke(*NIGHTLY, "-q", str(logs))
    assert done.code == 4 and f"{logs}/rot-bin.000007: not checked: symbolic links are not followed" in done.err


# --- Compressed files ---


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_missing_file_is_found_between_compressed_ones(tmp_path: Path, suffix: str) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    compress(*logs.glob("*.xlog"), suffix=suffix)
    assert invoke(*NIGHTLY, str(logs)).code == 0
    (logs / f"00000000000000000227.xlog{suffix}").unlink()
    done = invoke(*NIGHTLY, str(logs))
    assert done.code == 1 and "missing-member" in done.text


@pytest.mark.parametrize("number", ["000", "111", "227", "334", "436"])
def test_a_log_is_intact_with_any_one_file_compressed(tmp_path: Path, number: str) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    compress(logs / f"{number:0>20}.xlog")
    done = invoke(*NIGHTLY, str(logs))
    assert (done.code, "missing-member" in done.text) == (0, False)


def test_a_gap_between_named_files_is_found_beside_files_that_are_not_named(tmp_path: Path) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    words = (*NIGHTLY, str(logs / "00000000000000000111.xlog"), str(logs / "00000000000000000334.xlog"))
    assert "member-not-named" in invoke(*words).text and invoke(*words).code == 0
    (logs / "00000000000000000227.xlog").unlink()
    done = invoke(*words)
    assert done.code == 1 and "missing-member" in done.text


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (TARANTOOL, ("00000000000000000111.xlog", "00000000000000000334.xlog")),
        (SPHINX, ("binlog.001", "binlog.003")),
    ],
)
def test_a_gap_between_named_files_is_found(tmp_path: Path, source: Path, names: tuple[str, str]) -> None:
    for name in names:
        shutil.copyfile(source / name, tmp_path / name)
    done = invoke(*NIGHTLY, *(str(tmp_path / name) for name in names))
    assert done.code == 1 and "missing-member" in done.text


@pytest.mark.parametrize("source", [MARIADB, TARANTOOL, SPHINX], ids=["mariadb", "tarantool", "sphinx"])
def test_a_compressed_log_is_replayed_like_the_log(tmp_path: Path, source: Path) -> None:
    logs = copy(source, tmp_path / "logs")
    expected = invoke("replay-dry-run", str(source))
    compress(*(one for one in logs.iterdir() if one.suffix not in (".index", ".state", ".meta")))
    done = invoke("replay-dry-run", str(logs))
    assert (done.code, state_of(done)) == (expected.code, state_of(expected))
    assert invoke("replay-dry-run", "--compare", str(source), str(logs)).code == 0
    assert invoke("verify", "--expect-closed", str(logs)).code == 0


def test_files_that_an_administrator_compressed_are_not_read_by_a_server(tmp_path: Path) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    expected = invoke("replay-dry-run", str(logs))
    compress(*sorted(logs.glob("*.xlog"))[:2])
    done = invoke("replay-dry-run", str(logs))
    assert done.code == 1 and "2 compressed files are not read, as by a server" in done.err
    named = invoke("replay-dry-run", *map(str, sorted(logs.iterdir())))
    assert (named.code, state_of(named)) == (0, state_of(expected))


def test_different_compressed_files_are_not_equal(tmp_path: Path) -> None:
    for name in ("00000000000000000111.xlog", "00000000000000000227.xlog"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((TARANTOOL / name).read_bytes()))
    first, second = sorted(tmp_path.glob("*.gz"))
    done = invoke("replay-dry-run", "--compare", str(first), str(second))
    assert done.code == 1 and "ignored-file" not in done.text and str(second) in done.text


def test_a_cut_compressed_file_is_not_replayed(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    compress(logs / "mariadb-bin.000002")
    os.truncate(logs / "mariadb-bin.000002.gz", 400)
    done = invoke("replay-dry-run", str(logs))
    assert done.code == 4 and "mariadb-bin.000002.gz: the gzip data is cut at byte 400" in done.err


def test_files_of_one_log_that_are_named_are_replayed_as_one_log() -> None:
    directory = invoke("replay-dry-run", str(TARANTOOL))
    named = invoke("replay-dry-run", *map(str, sorted(TARANTOOL.iterdir())))
    assert (named.code, state_of(named)) == (directory.code, state_of(directory))


def test_an_unfinished_copy_is_counted_as_one(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    (logs / "mariadb-bin.000003.gz.part").write_bytes(b"\x1f\x8b")
    (logs / "notes.txt.gz").write_bytes(gzip.compress(b"notes"))
    assert (
        "not logs: 1 compressed file, 1 unfinished copy of a log (copy it again): " in invoke("verify", str(logs)).text
    )


# --- The end of a replay by GTID, in a directory ---


@pytest.mark.parametrize(
    ("gtid", "position"),
    [
        ("0-1-5", ("mariadb-bin.000001", 1572)),
        ("0-1-6", ("mariadb-bin.000002", 837)),
        ("0-1-7", ("mariadb-bin.000002", 1203)),
        ("0-1-8", ("mariadb-bin.000002", 1698)),
    ],
)
def test_a_replay_until_a_gtid_reaches_it(gtid: str, position: tuple[str, int]) -> None:
    """The offsets are the ends of the XID events, as `dump` and the event headers have them (end_log_pos)."""
    done = invoke("replay-dry-run", "-O", "json", "--until", f"gtid:{gtid}", str(MARIADB))
    value = json.loads(done.out)
    assert value["position"] == {"file": position[0], "offset": position[1], "gtid": gtid}


def test_a_replay_until_an_unknown_gtid_says_so() -> None:
    done = invoke("replay-dry-run", "--until", "gtid:0-1-99", str(MARIADB))
    assert "--until gtid:0-1-99: the log does not contain this GTID; it has 0-1-1 to 0-1-8" in done.err


# --- The state file of a nightly job ---


def test_damage_that_keeps_size_and_time_is_seen_with_a_state_file(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    words = (*NIGHTLY, "--state", str(tmp_path / "state"), str(logs))
    assert (invoke(*words).code, invoke(*words).code) == (0, 0)
    damaged = logs / "mariadb-bin.000001"
    status = damaged.stat()
    with damaged.open("r+b") as file:
        file.seek(1200)
        file.write(b"\xee")
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert invoke(*words).code == 1


def test_named_files_are_checked_as_a_set_with_a_state_file(tmp_path: Path) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    words = (*NIGHTLY, "--state", str(tmp_path / "state"))
    assert invoke(*words, *map(str, sorted(logs.glob("*.xlog")))).code == 0
    again = invoke(*words, *map(str, sorted(logs.glob("*.xlog"))))
    assert again.code == 0 and "--state: 5 of 5 paths not read" in again.err
    (logs / "00000000000000000227.xlog").unlink()
    done = invoke(*words, *map(str, sorted(logs.glob("*.xlog"))))
    assert done.code == 1 and "missing-member" in done.text


def test_a_log_is_either_in_use_or_closed() -> None:
    assert invoke("verify", "--live", "--expect-closed", str(CORPUS / "guides" / "tarantool-torn")).code == 2


# --- Cut and damaged compressed files ---


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """MariaDB's logs, compressed, with their index."""
    logs = copy(MARIADB, tmp_path / "packed")
    compress(logs / "mariadb-bin.000001", logs / "mariadb-bin.000002")
    return logs


@pytest.mark.parametrize(("size", "text"), [(15, "cut at byte 15"), (0, "the file is empty")])
def test_a_cut_copy_is_not_a_missing_file(packed: Path, size: int, text: str) -> None:
    cut = packed / "mariadb-bin.000002.gz"
    os.truncate(cut, size)
    done = invoke(*NIGHTLY, str(packed))
    assert done.code == 4 and done.err.count(str(cut)) == 1 and text in done.err and "copy" in done.err
    assert "missing-member" not in done.text and "next:" not in done.text


def test_a_damaged_compressed_file_is_read_up_to_the_damage(packed: Path) -> None:
    """`zlib` unpacks this many bytes before the changed ones."""
    damaged = packed / "mariadb-bin.000001.gz"
    data = bytearray(damaged.read_bytes())
    data[-120:-100] = b"\xff" * 20
    damaged.write_bytes(data)
    unpacker, expected = zlib.decompressobj(31), 0
    with pytest.raises(zlib.error):
        for byte in data:
            expected += len(unpacker.decompress(bytes([byte])))
    done = invoke("verify", str(damaged))
    assert done.code == 1 and f"the first {expected:,} bytes of the log could be unpacked" in done.text
    assert expected > 1000 and "next:" not in done.text


def test_a_gap_after_a_cut_file_is_a_finding_about_that_file(packed: Path) -> None:
    os.truncate(packed / "mariadb-bin.000001.gz", 700)
    lines = invoke("verify", str(packed)).text.splitlines()
    (whole,) = (line for line in lines if line.startswith("mariadb-bin.000002.gz"))
    assert " ok " in whole


def test_a_destroyed_file_beside_compressed_logs_is_reported(packed: Path) -> None:
    (packed / "mariadb-bin.index").unlink()
    (packed / "mariadb-bin.state").unlink()
    (packed / "mariadb-bin.000003").write_bytes(bytes(400))
    done = invoke(*NIGHTLY, str(packed))
    assert done.code == 3 and f"{packed}/mariadb-bin.000003: named like a log file" in done.err


def test_a_diagnosis_of_compressed_logs_says_to_unpack_them(packed: Path) -> None:
    done = invoke("diagnose", str(packed))
    assert done.code == 6 and "unpack them first" in done.text + done.err
    for name in ("mariadb-bin.index", "mariadb-bin.state"):
        (packed / name).unlink()
    copy(TARANTOOL, packed.parent / "other")
    done = invoke("diagnose", str(packed.parent))
    assert done.code == 6 and f"{packed}: its logs are compressed" in done.err


# --- What a nightly mail shows ---


def test_a_file_is_shown_with_the_server_that_it_belongs_to(tmp_path: Path) -> None:
    copy(MARIADB, tmp_path / "backup" / "db1")
    lines = invoke("verify", str(tmp_path / "backup")).text.splitlines()
    assert lines[0].startswith(f"{tmp_path}/backup/db1/mariadb-bin.index ")
    assert invoke("verify", str(tmp_path / "backup" / "db1")).text.startswith("mariadb-bin.index ")


def test_logs_of_a_directory_are_sorted(tmp_path: Path) -> None:
    for name, source in (("a", MARIADB), ("b", TARANTOOL), ("c", MARIADB), ("d", SPHINX)):
        copy(source, tmp_path / name)
    files = [one["path"] for one in json.loads(invoke("verify", "-O", "json", str(tmp_path)).out)["files"]]
    assert [os.path.dirname(one) for one in files] == sorted(os.path.dirname(one) for one in files)


def test_quiet_prints_no_notes_unless_they_fail_the_check() -> None:
    log = str(CORPUS / "guides" / "tarantool-torn")
    assert "torn-tail" in invoke("verify", log).text
    assert (invoke("verify", "-q", log).code, invoke("verify", "-q", log).out) == (0, b"")
    done = invoke("verify", "-q", "--fail-on", "note", log)
    assert done.code == 1 and "torn-tail" in done.text


def test_a_file_that_is_not_read_has_a_row(tmp_path: Path) -> None:
    empty = tmp_path / "mariadb-bin.000007"
    empty.touch()
    done = invoke("verify", str(empty))
    assert (done.code, done.err) == (3, f"binlogtool: {empty}: the file is empty\n")
    assert done.text == f"{empty}   not read\nexit 3\n"


def test_a_state_file_is_not_blamed_for_a_missing_log(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    (logs / "mariadb-bin.000002").unlink()
    done = invoke("verify", str(logs))
    (state,) = (line for line in done.text.splitlines() if line.startswith("mariadb-bin.state"))
    assert done.code == 1 and " ok " in state and "mariadb-bin.000002 does not exist" in done.text


def test_the_next_command_after_a_changed_file_shows_the_damage(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    words = ("verify", "--state", str(tmp_path / "state"), str(logs))
    invoke(*words)
    with (logs / "mariadb-bin.000001").open("r+b") as file:
        file.seek(0x50F + 20)  # in the GTID event at 0x50f
        file.write(b"\xee")
    done = invoke(*words)
    assert "changed-since-run" in done.text
    assert f"next: binlogtool hexdump-annotate --at 0x50f {logs}/mariadb-bin.000001" in done.text


def test_a_comparison_names_the_commands_that_show_the_rows(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    (logs / "mariadb-bin.000002").unlink()
    done = invoke("replay-dry-run", "-q", "--compare", str(MARIADB), str(logs))
    assert done.code == 1 and "decisions" not in done.text
    (first, second) = (line for line in done.text.splitlines() if line.startswith("next "))
    assert first.endswith(f"rows --object shop.orders {logs}")
    assert second.endswith(f"rows --object shop.orders {MARIADB}")
    assert invoke("rows", "--object", "shop.orders", str(logs)).code == 0


def test_annotations_of_a_set_begin_with_the_text(tmp_path: Path) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    (logs / "00000000000000000227.xlog").unlink()
    done = invoke("verify", "--report", "github", str(logs))
    assert "title=missing-member::00000000000000000227.xlog does not exist" in done.text


def test_snapshots_and_logs_in_two_directories_are_not_replayed_without_a_word(tmp_path: Path) -> None:
    logs = copy(TARANTOOL, tmp_path / "wal")
    (tmp_path / "memtx").mkdir()
    (logs / "00000000000000000000.snap").rename(tmp_path / "memtx" / "00000000000000000000.snap")
    done = invoke("replay-dry-run", str(tmp_path / "memtx"), str(logs))
    assert done.code == 1 and "copy the files of both into one directory" in done.err


def test_an_intact_ibb_log_is_intact_compressed(tmp_path: Path) -> None:
    """Its second file is the reserve of the server: zeros."""
    for packed in (CORPUS / "guides" / "ibb-torn").glob("*.ibb.gz"):
        (tmp_path / packed.name.removesuffix(".gz")).write_bytes(gzip.decompress(packed.read_bytes()))
    plain = json.loads(invoke("verify", "-O", "json", str(tmp_path)).out)
    compress(*tmp_path.glob("*.ibb"))
    done = json.loads(invoke("verify", "-O", "json", str(tmp_path)).out)
    for key in ("status", "summary"):
        assert done[key] == plain[key]
    assert [one["findings"] for one in done["files"]] == [one["findings"] for one in plain["files"]]


# --- Servers of which nothing was copied, or whose directory cannot be listed ---


def two_servers(parent: Path) -> Path:
    copy(MARIADB, parent / "x")
    (parent / "y").mkdir()
    return parent


@pytest.mark.parametrize("companion", [None, "rot-bin.state"])
def test_an_empty_directory_beside_those_of_servers_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, companion: str | None
) -> None:
    two_servers(tmp_path)
    if companion is not None:
        (tmp_path / "y" / companion).write_bytes(b"\1" * 16)
    report = tmp_path / "report.xml"
    done = invoke(*NIGHTLY, "-q", f"--report=junit={report}", str(tmp_path))
    assert done.code == 1 and f"{tmp_path}/y  (directory)" in done.text and "missing-member" in done.text
    assert f"{tmp_path}/y" in report.read_text()
    assert invoke("verify", str(tmp_path)).code == 0
    monkeypatch.chdir(tmp_path)
    assert invoke(*NIGHTLY, ".").code == 1


@pytest.mark.parametrize("name", ["lost+found", ".snapshots", "#innodb_temp", "vinyl"])
def test_directories_that_are_empty_on_sound_servers_are_no_alarm(tmp_path: Path, name: str) -> None:
    copy(MARIADB, tmp_path / "x")
    (tmp_path / name).mkdir()
    (tmp_path / "x" / "empty").mkdir()
    assert invoke(*NIGHTLY, str(tmp_path)).code == 0


def test_a_directory_that_cannot_be_listed_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, list_directory = str(two_servers(tmp_path) / "y"), os.scandir

    def scandir(path: str) -> object:
        if os.fspath(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return list_directory(path)

    monkeypatch.setattr(os, "scandir", scandir)
    done = invoke(*NIGHTLY, str(tmp_path))
    assert done.code == 4 and "mariadb-bin.000002" in done.text
    assert f"{closed}: not checked: the directory cannot be listed" in done.err
    assert invoke("dump", str(tmp_path)).code == 4


# --- Files that an earlier run recorded ---


@pytest.mark.parametrize(
    ("numbers", "severity"),
    [(["436"], "error"), (["334"], "error"), (["000"], "note"), (["000", "436"], "error")],
)
def test_a_recorded_file_that_is_missing_is_reported_until_it_returns(
    tmp_path: Path, numbers: list[str], severity: str
) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    words = ("verify", "--state", str(tmp_path / "state"), str(logs))
    invoke(*words)
    names = [f"{number:0>20}.xlog" for number in numbers]
    for name in names:
        (logs / name).rename(tmp_path / name)
    for _ in range(2):
        line = next(line for line in invoke(*words).text.splitlines() if "recorded by an earlier run" in line)
        assert line.split()[0] == severity and f"now missing: {names[-1]};" in line
    for name in names:
        (tmp_path / name).rename(logs / name)
    assert "recorded by an earlier run" not in invoke(*words).text


def test_a_recorded_server_that_is_missing_is_an_error(tmp_path: Path) -> None:
    for name in ("db1", "db2"):
        copy(MARIADB, tmp_path / "backup" / name)
    words = ("verify", "-q", "--state", str(tmp_path / "state"))
    assert invoke(*words, *(str(one) for one in sorted((tmp_path / "backup").iterdir()))).code == 0
    shutil.rmtree(tmp_path / "backup" / "db2")
    done = invoke(*words, str(tmp_path / "backup" / "db1"))
    assert done.code == 1 and f"{tmp_path}/backup/db2  (directory)" in done.text
    assert "mariadb-bin.000001, mariadb-bin.000002" in done.text
    assert invoke(*words, str(tmp_path / "backup" / "db1")).code == 1


def test_a_missing_server_below_the_named_directory_is_an_error(tmp_path: Path) -> None:
    for name in ("db1", "db2"):
        copy(MARIADB, tmp_path / "backup" / name)
    words = ("verify", "-q", "--state", str(tmp_path / "state"), str(tmp_path / "backup"))
    assert invoke(*words).code == 0
    shutil.rmtree(tmp_path / "backup" / "db2")
    assert (invoke(*words).code, invoke(*words).code) == (1, 1)


def test_unchanged_files_are_shown_as_such_and_other_options_start_again(tmp_path: Path) -> None:
    words = ("verify", "--state", str(tmp_path / "state"), str(copy(MARIADB, tmp_path / "logs")))
    assert " ok " in invoke(*words).text
    again = invoke(*words).text
    assert " unchanged " in again and " ok " not in again
    other = invoke(*words, "--expect-closed")
    assert " ok " in other.text and "recorded with other options" in other.err


def test_a_state_file_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state")
    done = invoke("verify", "--state", str(tmp_path / "state"), str(MARIADB))
    assert done.code == 2 and f"--state {tmp_path}/state: not a regular file" in done.err


# --- Names of missing files ---


def test_a_gap_between_named_files_is_found_beside_their_meta_file(tmp_path: Path) -> None:
    logs = copy(SPHINX, tmp_path / "logs")
    (logs / "binlog.002").unlink()
    named = invoke(*NIGHTLY, str(logs / "binlog.001"), str(logs / "binlog.003"))
    assert named.code == 1 and "binlog.002 is listed in binlog.meta, but missing" in named.text
    assert "binlog.002 is listed in binlog.meta, but missing" in invoke(*NIGHTLY, str(logs)).text
    (logs / "binlog.meta").unlink()
    assert "binlog.002 does not exist" in invoke(*NIGHTLY, str(logs)).text


def test_a_missing_file_of_tarantool_is_named_with_the_lost_rows(tmp_path: Path) -> None:
    logs = copy(TARANTOOL, tmp_path / "logs")
    (logs / "00000000000000000227.xlog").unlink()
    text = invoke(*NIGHTLY, str(logs)).text
    assert "00000000000000000227.xlog does not exist: LSN " in text
    assert "206..301 of replica 1 lost; 00000000000000000334.xlog follows it" in text


def test_a_missing_ibb_file_is_named(tmp_path: Path) -> None:
    logs = copy(CORPUS / "mariadb-innodb-binlog" / "page4k", tmp_path / "logs")
    (logs / "binlog-000001.ibb.gz").unlink()
    assert "binlog-000001.ibb does not exist: records" in invoke(*NIGHTLY, str(logs)).text


# --- Closed ends ---


def test_a_torn_end_that_only_the_set_shows_is_an_error_in_a_closed_log() -> None:
    done = invoke("verify", "--expect-closed", "-q", str(CORPUS / "guides" / "ibb-torn"))
    assert done.code == 1 and "error    0x00004000  torn-tail" in done.text
    assert invoke("verify", "-q", str(CORPUS / "guides" / "ibb-torn")).code == 0


@pytest.mark.parametrize("name", ["manticore/v7-mixed", "manticore/sphinx-mixed", "drizzle/basic-checksum.log"])
def test_an_end_that_cannot_be_proved_is_a_note_in_a_closed_log(name: str) -> None:
    done = invoke("verify", "--expect-closed", str(CORPUS / name))
    assert done.code == 0 and "this format has no end mark" in done.text
    assert "this format has no end mark" not in invoke("verify", str(CORPUS / name)).text


def test_a_closed_manticore_log_has_no_such_note() -> None:
    done = invoke("verify", "--expect-closed", str(CORPUS / "manticore" / "v16-cache"))
    assert "this format has no end mark" not in done.text


# --- What to do about a file that the list names ---


@pytest.mark.parametrize("name", ["mariadb-bin.000001", "mariadb-bin.000002"])
@pytest.mark.parametrize("kind", ["missing", "symbolic link", "FIFO", "directory"])
def test_a_listed_file_is_copied_again_before_its_line_is_removed(tmp_path: Path, kind: str, name: str) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    (logs / name).unlink()
    make = {"symbolic link": lambda path: path.symlink_to("/nonexistent"), "FIFO": os.mkfifo, "directory": Path.mkdir}
    make.get(kind, lambda _: None)(logs / name)
    text = invoke("verify", str(logs)).text
    assert f"next: binlogtool diagnose {logs}\n" in text
    assert (f"{name} does not exist" if kind == "missing" else f"not a regular file (it is a {kind})") in text
    steps = invoke("diagnose", str(logs)).text
    assert f"copy {name} from a backup" in steps and "truncate-to-durable --apply --fix-meta" not in steps
    if kind != "missing":
        refused = invoke("truncate-to-durable", "--fix-meta", str(logs))
        assert refused.code == 1 and f"not a regular file (it is a {kind})" in refused.text + refused.err


# --- Comparisons ---


def test_logs_of_different_formats_are_not_compared() -> None:
    done = invoke("replay-dry-run", "--compare", str(MARIADB), str(TARANTOOL))
    assert done.code == 2
    assert f"different formats: A = {TARANTOOL} has tarantool, B = {MARIADB} mysql-binlog" in done.err


def test_a_comparison_suggests_an_object_that_each_side_has(tmp_path: Path) -> None:
    logs = copy(CORPUS / "mysql_binlog" / "sets" / "mariadb", tmp_path / "logs")
    packed = copy(logs, tmp_path / "packed")
    (packed / "rot-bin.000005").unlink()
    compress(*packed.glob("rot-bin.00000?"))
    text = invoke("replay-dry-run", "-q", "--compare", str(logs), str(packed)).text
    assert f"compare   A = {packed}, B = {logs}\n          A and B differ in 1 object" in text
    (first, second) = (line.split()[2:] for line in text.splitlines() if line.startswith("next "))
    assert f"{packed}/rot-bin.000003.gz" in first and second[-1] == str(logs)
    for words in (first, second):
        assert invoke(*words).code in (0, 1) and invoke(*words).out


def test_a_state_file_names_the_last_log_that_is_missing(tmp_path: Path) -> None:
    logs = copy(CORPUS / "mysql_binlog" / "sets" / "mariadb", tmp_path / "logs")
    (logs / "rot-bin.index").unlink()
    (logs / "rot-bin.000008").unlink()
    done = invoke("verify", str(logs))
    assert done.code == 1 and "DAMAGED" not in done.text
    assert "rot-bin.000008 does not exist, or rot-bin.state is from another time" in done.text
    assert "transactions lost: 1-2-48 to 1-2-53" in done.text and f"next: binlogtool diagnose {logs}" in done.text


def test_what_follows_a_cut_stream_is_folded(packed: Path) -> None:
    file = packed / "mariadb-bin.000001.gz"
    data = bytearray(file.read_bytes())
    data[600] ^= 1
    file.write_bytes(data)
    lines = [line for line in invoke("verify", "-q", str(packed)).text.splitlines() if line.startswith("  ")]
    assert "compression-error" in lines[0] and len(lines) <= 3


def test_a_file_that_was_not_closed_has_one_state_in_all_outputs(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000111.xlog"
    log.write_bytes((CORPUS / "tarantool" / "chain" / "00000000000000000111.xlog").read_bytes()[:-4])
    report = tmp_path / "report.md"
    done = invoke("verify", "--expect-closed", f"--report=markdown={report}", str(log))
    assert done.code == 1 and "NOT CLOSED" in done.text and "| NOT CLOSED |" in report.read_text()
    assert "unclean-close" in done.text and " ok " not in done.text


def test_an_empty_member_is_said_to_be_empty(tmp_path: Path) -> None:
    logs = copy(MARIADB, tmp_path / "logs")
    (logs / "mariadb-bin.000001").write_bytes(b"")
    (line,) = (line for line in invoke("verify", str(logs)).text.splitlines() if "bad-magic" in line)
    assert line.endswith("the file is empty")
