"""`convert --append`: each record exactly once, whatever grows, rotates, is purged, replaced or killed."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core.record_and_selection_types import Selection
from binlogtool.errors import InputOutputError, RefusedError, UnknownFormatError, UsageError
from binlogtool.export.incremental_positions import IncrementalInput, open_commit_store
from binlogtool.limits import MIB
from tests.cli.invoke import invoke
from tests.export.appending import Server, append, commit, expected, keys, rows, sources
from tests.export.test_memory_of_tables import log_of_texts

IN_USE = 4 + 17
"""The byte of the header's flags with the one that a server clears when it closes a file."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    return folder


GROWING = [
    ("tarantool", "jsonl", 3),
    ("mariadb", "jsonl", 3),
    ("mariadb", "parquet", 1),
    ("mariadb", "orc", 1),
    ("tarantool", "avro", 1),
    ("mariadb", "csv", 1),
    ("tarantool", "json", 1),
    pytest.param("tarantool", "parquet", 5, marks=pytest.mark.nightly),
    pytest.param("mariadb", "parquet", 5, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kind", "to", "pieces"), GROWING)
def test_a_log_that_grows_rotates_and_is_purged_has_every_record_once(
    kind: str, to: str, pieces: int, samples: Path, tmp_path: Path, out: Path
) -> None:
    files = sources(kind, samples)
    server = Server(tmp_path / "log", files[:3], random.Random(f"{kind} {to}"), pieces)
    before = 0
    while server:
        server.write()
        done = append(tmp_path / "log", out, to)
        assert done.exit_code == 0 and done.details["append"]["rows"] == before + done.rows == len(rows(out))
        before += done.rows
        server.purge(out)
    assert append(tmp_path / "log", out, to, final=True).exit_code == 0
    assert keys(kind, out) == [key for file in files[:3] for key in expected(kind, file)]


def test_without_news_nothing_is_written(samples: Path, log: Path, out: Path) -> None:
    shutil.copy(sources("tarantool", samples)[0], log)
    append(log, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(log))
    assert (done.code, done.text.splitlines()[-1]) == (0, "nothing new")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_transaction_waits_for_its_end_or_for_final(samples: Path, log: Path, out: Path) -> None:
    file = sources("mariadb", samples)[0]
    events = [at for _, _, at in expected("mariadb", file)]
    data = bytearray(file.read_bytes()[: events[-2] + 5])  # torn in the last event but one
    data[IN_USE] |= 1
    (log / file.name).write_bytes(data)
    append(log, out)
    waiting = [at for _, _, at in keys("mariadb", out)]
    assert waiting == events[: len(waiting)] and commit(out)["inputs"][0]["to"] in events
    append(log, out, final=True)
    assert [at for _, _, at in keys("mariadb", out)] == events[:-2]


def test_a_file_that_was_purged_before_it_was_complete_is_told_once(samples: Path, log: Path, out: Path) -> None:
    first, second, third = sources("mariadb", samples)[:3]
    shutil.copy(first, log)
    append(log, out)
    (log / first.name).unlink()
    shutil.copy(second, log)
    shutil.copy(third, log)
    done = append(log, out)
    assert done.exit_code == 1
    assert [one["id"] for one in done.findings if first.name in one["file"]] == ["changed-while-read"]
    assert append(log, out).exit_code == 0
    assert {name for _, name, _ in keys("mariadb", out)} == {first.name, second.name, third.name}


def test_a_file_that_its_server_ended_and_purged_before_the_next_one_has_rows_is_not_told(
    samples: Path, log: Path, out: Path
) -> None:
    first, second = sources("tarantool", samples)[:2]
    head = second.read_bytes().index(b"\n\n") + 2
    shutil.copy(first, log)
    (log / second.name).write_bytes(second.read_bytes()[:head])  # as a server begins it
    append(log, out)
    assert keys("tarantool", out) == expected("tarantool", first)
    (log / first.name).unlink()
    shutil.copy(second, log)
    assert (done := append(log, out)).exit_code == 0, done.findings
    assert done.findings == () and keys("tarantool", out) == expected("tarantool", first) + expected(
        "tarantool", second
    )


@pytest.mark.parametrize("cut", [4, 5, 50])
def test_a_file_that_its_server_did_not_end_may_have_had_more(cut: int, samples: Path, log: Path, out: Path) -> None:
    first, second = sources("tarantool", samples)[:2]
    data = first.read_bytes()
    assert data.endswith(bytes.fromhex("d510aded"))
    (log / first.name).write_bytes(data[:-cut])
    append(log, out)
    (log / first.name).unlink()
    shutil.copy(second, log)
    done = append(log, out)
    assert done.exit_code == 1
    assert [one["message"] for one in done.findings if first.name in one["file"]] == [
        "the file was removed before it was complete; what was not read is lost"
    ]


def test_a_file_without_rows_that_its_server_goes_on_in_is_read_on(samples: Path, log: Path, out: Path) -> None:
    """Tarantool opens such a file again, though it had ended it."""
    first = sources("tarantool", samples)[0]
    data = first.read_bytes()
    (log / first.name).write_bytes(data[: data.index(b"\n\n") + 2] + bytes.fromhex("d510aded"))
    append(log, out)
    shutil.copy(first, log)
    assert append(log, out).exit_code == 0
    assert keys("tarantool", out) == expected("tarantool", first)


@pytest.mark.parametrize("to", ["jsonl", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_another_file_of_a_name_is_a_new_generation(to: str, samples: Path, log: Path, out: Path) -> None:
    first, second = sources("mariadb", samples)[:2]
    shutil.copy(first, log / "bin.000001")
    append(log, out, to)
    old = keys("mariadb", out)
    shutil.copy(second, log / "bin.000001")
    done = append(log, out, to)
    assert done.exit_code == 1 and "replaced" in done.findings[0]["message"]
    assert [one["id"] for one in done.findings if one["id"] == "changed-while-read"] == ["changed-while-read"]
    new = [(1, "bin.000001", at) for _, _, at in expected("mariadb", second)]
    assert keys("mariadb", out)[len(old) :] == new[: len(keys("mariadb", out)) - len(old)]
    assert append(log, out, to, final=True).exit_code == 0
    assert keys("mariadb", out)[len(old) :] == new


def test_a_name_that_comes_again_after_a_purge_is_a_new_generation(samples: Path, log: Path, out: Path) -> None:
    first, second, third = sources("mariadb", samples)[:3]
    shutil.copy(first, log / "bin.000001")
    shutil.copy(second, log / "bin.000002")
    append(log, out)
    (log / "bin.000001").unlink()
    assert append(log, out).exit_code == 0
    (log / "bin.000002").unlink()
    shutil.copy(third, log / "bin.000001")  # RESET MASTER
    append(log, out, final=True)
    made = keys("mariadb", out)
    assert len(set(made)) == len(made)
    assert [key for key in made if key[0] == 1] == [(1, "bin.000001", at) for _, _, at in expected("mariadb", third)]


def test_what_a_log_that_was_begun_anew_had_behind_is_told_once(samples: Path, log: Path, out: Path) -> None:
    """RESET MASTER: the last file had unread records, and its number may never come again."""
    first, second, third = sources("mariadb", samples)[:3]
    shutil.copy(first, log / "bin.000001")
    shutil.copy(second, log / "bin.000002")
    append(log, out)
    for path in log.iterdir():
        path.unlink()
    with pytest.raises(UnknownFormatError, match="no log files"):
        append(log, out)  # nothing at all is there: the directory may only be away
    shutil.copy(third, log / "bin.000001")
    done = append(log, out)
    lost = [one["file"] for one in done.findings if "removed before it was complete" in one["message"]]
    assert (done.exit_code, lost) == (1, [str(log / "bin.000002")])
    assert append(log, out, final=True).exit_code == 0
    assert [one["gone"] for one in commit(out)["inputs"]] == [False, True]
    assert {key for key in keys("mariadb", out) if key[0]} == {
        (1, "bin.000001", at) for _, _, at in expected("mariadb", third)
    }


def test_a_file_that_is_not_named_this_time_is_not_taken_for_removed(samples: Path, log: Path, out: Path) -> None:
    first, second = (Path(shutil.copy(one, log)) for one in sources("mariadb", samples)[:2])
    append(first, out)
    assert append(second, out).exit_code == 0
    assert [one["gone"] for one in commit(out)["inputs"]] == [False, False]
    assert append(log, out, final=True).exit_code == 0
    assert sorted(keys("mariadb", out)) == [key for file in (first, second) for key in expected("mariadb", file)]


def test_what_a_server_has_for_a_moment_only_is_not_read(samples: Path, log: Path, out: Path) -> None:
    """A Tarantool that writes a checkpoint beside its log, which is there under its own name afterwards."""
    first, second = sources("tarantool", samples)[:2]
    shutil.copy(first, log)
    shutil.copy(second, log / f"{second.name}.inprogress")
    append(log, out)
    assert {name for _, name, _ in keys("tarantool", out)} == {first.name}
    (log / f"{second.name}.inprogress").rename(log / second.name)
    assert append(log, out, final=True).exit_code == 0
    assert keys("tarantool", out) == [key for file in (first, second) for key in expected("tarantool", file)]


def test_a_log_that_goes_on_behind_final_is_told_and_its_index_is_no_part_of_it(
    samples: Path, log: Path, out: Path
) -> None:
    file = sources("mariadb", samples)[0]
    data, events = file.read_bytes(), [at for _, _, at in expected("mariadb", file)]
    (log / "rot-bin.index").write_text(f"./{file.name}\n")
    (log / file.name).write_bytes(data[: events[-2]])
    assert append(log, out, final=True).exit_code == 0
    assert [Path(one["name"]).name for one in commit(out)["inputs"]] == [file.name]
    (log / "rot-bin.index").write_text(f"./{file.name}\n./rot-bin.000009\n")
    (log / file.name).write_bytes(data)
    done = append(log, out)
    assert done.exit_code == 1 and len(done.findings) == 1
    assert f"extended by {len(data) - events[-2]} bytes after it was complete" in done.findings[0]["message"]
    assert append(log, out).exit_code == 0
    assert [at for _, _, at in keys("mariadb", out)] == events[:-2]


def test_a_file_that_vanishes_behind_the_listing_ends_no_run(
    samples: Path, log: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(sources("tarantool", samples)[0], log)
    names, vanished = IncrementalInput.list_files, (str(log / f"{9:020}.xlog"), "tarantool")
    monkeypatch.setattr(IncrementalInput, "list_files", lambda self: iter([*names(self), vanished]))
    assert append(log, out).exit_code == 0 and len(rows(out)) > 0
    assert append(log, out).exit_code == 0


@pytest.mark.parametrize("how", ["renamed", "linked", "copied"])
def test_a_log_under_another_path_is_refused_not_added_again(how: str, samples: Path, log: Path, out: Path) -> None:
    for file in sources("mariadb", samples)[:2]:
        shutil.copy(file, log)
    append(log, out)
    before, other = rows(out), log.with_name("other")
    if how == "linked":
        other.symlink_to(log)
    else:
        (log.rename if how == "renamed" else lambda path: shutil.copytree(log, path))(other)
    done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(other))
    assert done.code == 5 and f"was read as {log}/" in done.err and "a symbolic link is enough" in done.err
    assert rows(out) == before
    if how == "renamed":
        log.symlink_to(other)
    assert append(log, out, final=True).exit_code == 0
    assert keys("mariadb", out) == [key for file in sorted(log.iterdir()) for key in expected("mariadb", file)]


@pytest.mark.parametrize("name", ["7.json", "part-00000007.json", "part-00000007.json.gz", "part-00000007.parquet"])
def test_what_is_not_finished_is_no_commit_for_who_looks_for_them(name: str, tmp_path: Path) -> None:
    with open_commit_store(tmp_path / "out") as store:
        store.pending_path(tmp_path / "out" / name).touch()
    assert not list((tmp_path / "out" / "_binlogtool").glob("*.json")) and commit(tmp_path / "out") == {}


def test_what_a_killed_run_left_is_removed(samples: Path, log: Path, out: Path) -> None:
    shutil.copy(sources("tarantool", samples)[0], log)
    append(log, out)
    (out / "part-00000002.jsonl").write_text("half")
    (out / "_binlogtool" / "pending-2.json").write_text("{")
    (out / "mine.txt").write_text("stays")
    told = append(log, out).details["leftovers"]
    assert len(told) == 2 and all("removed" in text for text in told)
    assert sorted(os.listdir(out)) == ["_binlogtool", "mine.txt", "part-00000001.jsonl"]


@pytest.mark.parametrize("at", [400, 1500])
def test_a_byte_that_changed_in_what_was_read_is_refused(at: int, samples: Path, log: Path, out: Path) -> None:
    """Neither the head nor the bytes before the place that was reached, which are looked at in each run anyway."""
    data = sources("mariadb", samples)[0].read_bytes()
    path = log / "bin.000001"
    path.write_bytes(data[: len(data) // 2])
    append(log, out)
    assert commit(out)["inputs"][0]["to"] > 2000
    changed = bytearray(data)
    changed[at] ^= 1
    path.write_bytes(changed)
    before = rows(out)
    with pytest.raises(RefusedError, match="bytes differ from those that were read before"):
        append(log, out)
    assert rows(out) == before and commit(out)["number"] == 1
    path.write_bytes(data)
    assert append(log, out, final=True).exit_code == 0
    assert len(rows(out)) == len(expected("mariadb", path))


def test_the_flag_that_a_server_clears_when_it_closes_a_file_is_no_change(samples: Path, log: Path, out: Path) -> None:
    data = bytearray(sources("mariadb", samples)[0].read_bytes())
    path = log / "bin.000001"
    data[IN_USE] |= 1
    path.write_bytes(data[: len(data) // 2])
    append(log, out)
    data[IN_USE] &= 0xFE
    path.write_bytes(data)
    assert append(log, out, final=True).exit_code == 0
    assert len(rows(out)) == len(expected("mariadb", path))


def test_damage_stops_and_adds_nothing_until_it_is_left_out(samples: Path, log: Path, out: Path) -> None:
    file = sources("tarantool", samples)[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2 + 30] ^= 1
    (log / file.name).write_bytes(data)
    done = append(log, out)
    assert (done.complete, done.exit_code, rows(out)) == (False, 1, [])
    assert sorted(os.listdir(out)) == ["_binlogtool"]
    assert append(log, out, selection=Selection(on_damage="skip")).exit_code == 0
    records = [row["record"] for row in rows(out)]
    assert records == sorted(set(records)) and 0 < len(records) < len(expected("tarantool", file))


@pytest.mark.full
@pytest.mark.parametrize(
    "to", ["jsonl", "orc", *(pytest.param(to, marks=pytest.mark.nightly) for to in ("parquet", "avro", "csv", "json"))]
)
def test_a_disk_that_is_full_is_told_and_nothing_is_added(to: str, samples: Path, log: Path, out: Path) -> None:
    """A limit of the size of files is met where a full disk is; it does not need a disk of its own."""
    files = sources("mariadb", samples)[:3]
    shutil.copy(files[0], log)
    append(log, out, to)
    before, there = commit(out), {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for file in files[1:]:
        shutil.copy(file, log)
    words = [sys.executable, "-m", "binlogtool", "convert", "--append", "--to", to, "-o", str(out), str(log)]
    most = 3000
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most))
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True)
    assert done.returncode == 4 and "File too large" in done.stderr and len(done.stderr.splitlines()) == 1, done
    assert commit(out) == before and {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == there
    assert append(log, out, to, final=True).exit_code == 0
    assert keys("mariadb", out) == [key for file in files for key in expected("mariadb", file)]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(samples: Path, log: Path, out: Path) -> tuple[Path, Path]:
    shutil.copy(sources("tarantool", samples)[0], log)
    append(log, out)
    return log, out


def test_a_second_writer_is_refused(begun: tuple[Path, Path]) -> None:
    log, out = begun
    with (out / "_binlogtool" / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(log))
    assert done.code == 5 and "another process" in done.err and len(done.err.splitlines()) == 1


def test_other_options_are_refused(begun: tuple[Path, Path]) -> None:
    log, out = begun
    done = invoke("convert", "--append", "--to", "jsonl", "--type", "INSERT", "-o", str(out), str(log))
    assert done.code == 5 and 'types was null, now ["INSERT"]' in done.err
    with pytest.raises(RefusedError, match='to was "jsonl", now "parquet"'):
        append(log, out, "parquet")


def test_an_output_of_another_kind_is_refused(samples: Path, log: Path, out: Path) -> None:
    out.mkdir()
    (out / "mine").write_text("")
    with pytest.raises(RefusedError, match="not made with --append"):
        append(log, out)
    (out / "mine").unlink()
    out.rmdir()
    out.write_text("")
    with pytest.raises(RefusedError, match="exists and is not a directory"):
        append(log, out)


@pytest.mark.parametrize("text", ["", "{", '{"number": 2}', "[]", "{}", '{"number": 1, "schema": "other/1"}'])
def test_a_broken_commit_is_told_and_nothing_is_touched(begun: tuple[Path, Path], text: str) -> None:
    log, out = begun
    (out / "_binlogtool" / "1.json").write_text(text)
    done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(log))
    assert done.code == 4 and "1.json" in done.err and len(done.err.splitlines()) == 1
    assert sorted(os.listdir(out)) == ["_binlogtool", "part-00000001.jsonl"]


def test_a_commit_with_another_digit_is_told(begun: tuple[Path, Path]) -> None:
    log, out = begun
    path = out / "_binlogtool" / "1.json"
    text = path.read_text()
    at = text.index('"offset": ') + len('"offset": ')
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    with pytest.raises(InputOutputError, match="was modified"):
        append(log, out)
    assert sorted(os.listdir(out)) == ["_binlogtool", "part-00000001.jsonl"]
    path.write_text(text)
    assert append(log, out).exit_code == 0


def test_files_whose_commits_were_removed_are_not_taken_for_what_a_killed_run_left(
    samples: Path, log: Path, out: Path
) -> None:
    for file in sources("mariadb", samples)[:3]:
        shutil.copy(file, log)
        append(log, out)
    (out / "_binlogtool" / "3.json").unlink()
    assert len(append(log, out).details["leftovers"]) == 1  # as if the run had been killed: it is done again
    before = rows(out)
    kept = {path: path.read_bytes() for path in (out / "_binlogtool").glob("*.json")}
    for path in kept:
        path.unlink()
    done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(log))
    assert done.code == 5 and "part-00000002.jsonl" in done.err and "commits are missing" in done.err
    for path, data in kept.items():
        path.write_bytes(data)
    assert rows(out) == before


def test_a_part_that_is_gone_is_told(begun: tuple[Path, Path]) -> None:
    log, out = begun
    (out / "part-00000001.jsonl").unlink()
    with pytest.raises(InputOutputError, match="is missing"):
        append(log, out)


def test_a_row_that_is_there_already_is_never_added(begun: tuple[Path, Path]) -> None:
    log, out = begun
    path = out / "_binlogtool" / "1.json"
    made = json.loads(path.read_bytes())
    made["inputs"][0]["place"] |= {"offset": 0, "record": 0, "frame": 0, "carried": "null"}
    made["inputs"][0] |= {"mark": "", "done": False}
    made["check"] = ""
    path.write_text(json.dumps(made))
    with pytest.raises(InputOutputError, match="would be appended twice"):
        append(log, out)
    assert commit(out)["number"] == 1 and sorted(os.listdir(out)) == ["_binlogtool", "part-00000001.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--final",), "--final needs --append"),
        (("--append", "--to", "raw"), "--append is for jsonl, parquet"),
        (("--append", "--overwrite"), "it cannot be combined with --overwrite"),
        (("--append", "--start-position", "4"), "positions"),
        (("--append", "--limit", "3"), "--append cannot be combined with --skip, --limit"),
        (("--append", "--to", "parquet", "--master", "spark://127.0.0.1:1"), "it cannot be combined with --master"),
    ],
)
def test_options_that_do_not_go_with_it_are_refused(
    begun: tuple[Path, Path], words: tuple[str, ...], said: str
) -> None:
    log, out = begun
    to = () if "--to" in words else ("--to", "jsonl")
    done = invoke("convert", *to, *words, "-o", f"{out}2", str(log))
    assert done.code == 2 and said in done.err


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mysql_binlog/sets/mariadb/rot-bin.index", "binlog index"),
        ("mysql_binlog/sets/mariadb/rot-bin.state", "GTID state"),
        ("manticore/*/binlog.meta", "binlog.meta v5"),
    ],
)
def test_a_file_beside_a_log_is_told_not_to_be_one(name: str, kind: str, samples: Path, out: Path) -> None:
    path = min(samples.glob(name))
    done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(path))
    said = f"{path} ({kind}) holds no records; name the files of the log, or their directory\n"
    assert done.code == 2 and done.err.endswith(said) and not out.exists()


def test_a_file_beside_a_log_may_be_named_together_with_it(samples: Path, log: Path, out: Path) -> None:
    files = sources("mariadb", samples)[:1]
    index = samples / "mysql_binlog" / "sets" / "mariadb" / "rot-bin.index"
    done = invoke("convert", "--append", "--to", "jsonl", "-o", str(out), str(index), *map(str, files), "--final")
    assert done.code == 0 and keys("mariadb", out) == expected("mariadb", files[0])


def test_a_packed_file_is_refused(samples: Path, log: Path, out: Path) -> None:
    import gzip

    data = sources("tarantool", samples)[0].read_bytes()
    (log / "a.xlog.gz").write_bytes(gzip.compress(data))
    with pytest.raises(UsageError, match="packed"):
        append(log / "a.xlog.gz", out)


def test_a_value_that_is_written_in_pieces_is_appended_whole(tmp_path: Path) -> None:
    log = log_of_texts(tmp_path, 2, 3 * MIB)
    binlogtool.convert([log], "jsonl", tmp_path / "out", append=True, final=True)
    (part,) = (tmp_path / "out").glob("part-*")
    lines = [json.loads(line) for line in part.read_text().splitlines()]
    texts = [line["body"]["rows"][0]["after"]["a"] for line in lines if line["type"].startswith("WRITE_ROWS")]
    assert texts == ["a" * 3 * MIB] * 2 and {line["generation"] for line in lines} == {0}


@pytest.mark.parametrize("to", ["jsonl", "csv"])
def test_files_that_do_not_follow_each_other_stop_a_run_as_they_stop_a_conversion(
    samples: Path, tmp_path: Path, to: str
) -> None:
    """Without the third log rows are missing. Each run reports only what no earlier run has read."""
    folder = shutil.copytree(samples / "tarantool" / "chain", tmp_path / "log")
    missing = (folder / "00000000000000000227.xlog").rename(tmp_path / "missing")
    whole = binlogtool.convert(folder, to, tmp_path / "whole")
    first = append(folder, tmp_path / "out", to)
    for manifest in (whole, first):
        assert (manifest.exit_code, manifest.complete, dict(manifest.finding_counts)) == (
            1,
            False,
            {"missing-member": 1},
        )
    accepted = append(folder, tmp_path / "out", to, selection=Selection(on_damage="skip"))
    assert (accepted.exit_code, dict(accepted.finding_counts)) == (0, {"missing-member": 1})
    again = append(folder, tmp_path / "out", to)
    assert (again.exit_code, again.rows, dict(again.finding_counts)) == (0, 0, {})
    missing.rename(folder / "00000000000000000227.xlog")
    assert append(folder, tmp_path / "out", to).exit_code == 0
