"""Intents and undo files that came with a directory from elsewhere: nothing outside of it is written, nor odd files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError, RefusedError
from binlogtool.repair.undo_file import FIXED_HEADER
from tests.cli.invoke import invoke
from tests.formats.manticore.make import add_index, add_txn, killed, log, meta

DATA = log(add_index(0, b"t"), add_txn(0, 1, killed(1)), add_txn(0, 2, killed(2)))
NEW = b"* * * * * root id\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(path: object, **members: Any) -> dict[str, Any]:
    """A file that is not there and would be created."""
    return {
        "path": str(path), "size": 0, "sha256": sha(b""), "result_size": len(NEW), "result_sha256": sha(NEW),
        "mode": 0o644, "uid": os.getuid(), "gid": os.getgid(), "atime_ns": 0, "mtime_ns": 0, "cut": False,
        "pieces": [{"bytes": NEW.hex()}], "restore": [], "removed": False, "created": True, "attributes": {},
        **members,
    }  # fmt: skip


def write_undo(path: Path, entries: object, body: bytes = b"", state: bytes = b"prepared") -> Path:
    value = {"schema": "binlogtool/undo-file/1", "made": "x", "plan": {"format": "manticore"}, "files": entries}
    header = json.dumps(value).encode()
    body_at = -(-(FIXED_HEADER.size + len(header)) // 4096) * 4096
    digest = hashlib.sha256(header + body).digest()
    head = FIXED_HEADER.pack(b"BLTUNDO1", state, len(header), body_at, len(body), digest) + header
    path.write_bytes(head.ljust(body_at, b"\0") + body)
    return path


def hostile(tmp_path: Path, *entries: dict[str, Any], direction: str = "apply", state: bytes = b"prepared") -> Path:
    """A log directory with a valid log, an undo file and an intent that names it."""
    folder = tmp_path / "hostile"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "binlog.0000").write_bytes(DATA[:-3])
    (folder / "binlog.meta").write_bytes(meta([0]))
    first = os.path.basename(entries[0]["path"]) if entries else "binlog.0000"
    undo = write_undo(folder / f"{first}.binlogtool-undo-20260101T000000Z-00112233", list(entries), state=state)
    (folder / ".binlogtool-intent").write_text(json.dumps({"undo": str(undo), "direction": direction}))
    return folder


def everything(folder: Path) -> dict[str, Any]:
    return {
        str(p): (p.lstat().st_mode, os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None)
        for p in sorted(folder.rglob("*"))
    }


OUTSIDE = ("../outside/binlog.0007", "../outside/cron", "../binlog.0007", "sub/../../outside/binlog.0007")
INSIDE = (".bashrc", "run.sh", "link/binlog.0007", ".binlog.0007")


@pytest.mark.parametrize("name", [*OUTSIDE, *INSIDE])
@pytest.mark.parametrize("direction", ["apply", "undo"])
def test_an_intent_that_names_another_file_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str, direction: str
) -> None:
    (tmp_path / "outside").mkdir()
    members = {} if direction == "apply" else {"removed": True, "created": False, "size": 0, "restore": []}
    strange = entry(f"{tmp_path}/hostile/{name}", **members)
    folder = hostile(tmp_path, entry(f"{tmp_path}/hostile/binlog.0005", **members), strange, direction=direction)
    (folder / "link").symlink_to(tmp_path / "outside")
    before = everything(tmp_path)
    plan = invoke("truncate-to-durable", str(folder))
    assert plan.code == 1 and "cannot be finished" in plan.text
    done = invoke("truncate-to-durable", "--apply", "--yes", str(folder))
    assert done.code == 5 and done.err.count("\n") == 1 and "nothing was changed" in done.err
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "members",
    [
        {"mode": 0o4755}, {"mode": 0o2755}, {"attributes": {"security.capability": "00"}}, {"mode": -1},
        {"uid": 1 << 70}, {"result_size": 5}, {"pieces": [{"zeros": 1 << 60}], "result_size": 1 << 60},
        {"pieces": [{"start": 5, "end": 2}]}, {"restore": [["result", 0, 9]]}, {"path": 5}, {"path": "binlog.0005"},
        {"path": "/x/\ud800"}, {"path": "/x/\0"}, {"attributes": []}, {"attributes": {"user.x": "zz"}},
        {"size": "x"}, {"removed": "yes"}, {"pieces": None}, {"restore": [[1, 2, 3]]}, {"cut": 1},
    ],
)  # fmt: skip
def test_an_odd_member_of_an_entry_is_refused_and_nothing_is_written(tmp_path: Path, members: dict[str, Any]) -> None:
    odd = entry(tmp_path / "hostile" / "binlog.0007") | members
    folder = hostile(tmp_path, entry(tmp_path / "hostile" / "binlog.0005"), odd)
    before = everything(tmp_path)
    done = invoke("truncate-to-durable", "--apply", "--yes", str(folder))
    (line,) = [line for line in done.err.splitlines() if "interrupted apply: " not in line]
    assert done.code == 5 and "nothing was changed" in line
    assert everything(tmp_path) == before


def test_what_an_interrupted_repair_would_write_is_listed_and_asked_for(tmp_path: Path) -> None:
    """A repair of two files that was interrupted: without a yes nothing happens, and both paths are named."""
    names = [tmp_path / "hostile" / f"binlog.000{digit}" for digit in (5, 6)]
    folder = hostile(tmp_path, *map(entry, names))
    before = everything(tmp_path)
    plan = invoke("truncate-to-durable", str(folder))
    assert plan.code == 1 and all(f"{name}: create, {len(NEW)} bytes" in plan.text for name in names)
    asked = invoke("truncate-to-durable", "--apply", str(folder))
    assert asked.code == 5 and "--yes" in asked.err
    assert everything(tmp_path) == before
    done = invoke("truncate-to-durable", "--apply", "--yes", str(folder))
    assert all(f"{name}: create, {len(NEW)} bytes" in done.err for name in names)
    assert [name.read_bytes() for name in names] == [NEW, NEW] and not (folder / ".binlogtool-intent").exists()
    assert "nothing was changed" not in done.err + done.text


@pytest.mark.parametrize("name", ["/dev/zero", "/etc/passwd", "binlog.0000", "x.undo", "pipe"])
def test_an_intent_that_names_no_undo_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = hostile(tmp_path, entry(tmp_path / "hostile" / "binlog.0005"))
    os.mkfifo(folder / "pipe")
    (folder / ".binlogtool-intent").write_text(json.dumps({"undo": str(folder / name), "direction": "apply"}))
    (folder / "x.undo").write_bytes(b"x")
    done = invoke("truncate-to-durable", "--apply", "--yes", str(folder))
    assert done.code == 5 and "is not named like an undo file" in done.err


def test_a_name_that_is_a_directory_or_a_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for kind in ("directory", "link", "hard link"):
        victim.write_bytes(b"victim")
        path = tmp_path / "hostile" / "binlog.0007"
        cut = entry(path, created=False, cut=True, size=6, sha256=sha(b"victim"), result_size=0,
                    result_sha256=sha(b""), pieces=[{"start": 0, "end": 0}], restore=[["undo", 0, 6]])  # fmt: skip
        folder = hostile(tmp_path, entry(tmp_path / "hostile" / "binlog.0005"), cut)
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(victim)
        else:
            path.hardlink_to(victim)
        before = everything(tmp_path)
        done = invoke("truncate-to-durable", "--apply", "--yes", str(folder))
        assert done.code in (4, 5), kind
        assert everything(tmp_path) == before, kind


@pytest.mark.parametrize("name", ["../cron", "../outside/cron", ".bashrc", "link/binlog.0007"])
def test_an_undo_file_that_names_another_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "hostile"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    body = NEW
    back = entry(os.path.normpath(folder / name), removed=True, created=False, size=len(body), sha256=sha(body),
                 restore=[["undo", 0, len(body)]], result_size=0, result_sha256="", pieces=[])  # fmt: skip
    undo = write_undo(folder / "binlog.0007.binlogtool-undo-20260101T000000Z-00112233", [back], body, b"applied")
    before = everything(tmp_path)
    for words in ([], ["--apply", "--yes"]):
        done = invoke("undo", *words, str(undo))
        assert done.code == 5 and "nothing was changed" in done.err
    assert everything(tmp_path) == before


def test_an_undo_file_never_gives_set_user_id_bits(tmp_path: Path) -> None:
    back = entry(tmp_path / "binlog.0007", removed=True, created=False, size=len(NEW), sha256=sha(NEW), mode=0o4755,
                 restore=[["undo", 0, len(NEW)]], result_size=0, result_sha256="", pieces=[])  # fmt: skip
    undo = write_undo(tmp_path / "binlog.0007.binlogtool-undo-20260101T000000Z-00112233", [back], NEW, b"applied")
    assert invoke("undo", "--apply", "--yes", str(undo)).code == 5
    assert not (tmp_path / "binlog.0007").exists()


def test_mode_bits_that_the_file_has_already_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "binlog.0000"
    path.write_bytes(DATA[:-3])
    path.chmod(0o2640)
    done = binlogtool.apply_plan(binlogtool.plan_truncate(path))
    assert done.undo is not None and path.read_bytes() != DATA[:-3]
    binlogtool.undo(done.undo)
    assert path.read_bytes() == DATA[:-3] and stat.S_IMODE(path.stat().st_mode) == 0o2640


def test_members_of_undo_files_and_intents_of_any_kind_are_refused_in_a_line(tmp_path: Path) -> None:
    """Each member replaced, removed or nested: a library error each time, and no file outside is touched."""
    rng = random.Random(33)
    odd = (None, -1, 1 << 80, "x", [], {}, [[[]]], {"a": {"b": []}}, True, 1.5, "\ud800", "/\0", "9" * 5000)
    good = [entry(tmp_path / "hostile" / f"binlog.000{n}") for n in (5, 6)]
    tried = 0
    for member in [*good[0], None]:
        for value in (*odd, KeyError):
            changed = [dict(good[0]), dict(good[1])]
            if member is None:
                changed = rng.choice([value, [value], [changed[0], value]]) if value is not KeyError else []
            elif value is KeyError:
                del changed[1][member]
            else:
                changed[1][member] = value
            folder = hostile(tmp_path)
            undo = folder / "binlog.0005.binlogtool-undo-20260101T000000Z-00112233"
            write_undo(undo, changed)
            (folder / ".binlogtool-intent").write_text(json.dumps({"undo": str(undo), "direction": "apply"}))
            for call in (binlogtool.plan_finish, binlogtool.finish_repair):
                try:
                    call(folder)
                except BinlogtoolError as error:
                    assert error.exit_code in (3, 4, 5)
            tried += 1
            assert sorted(p.name for p in tmp_path.iterdir()) == ["hostile"]
    assert tried == 238
    for text in ("[" * 100_000, "{}", "5", '{"undo":5,"direction":"apply"}', '{"undo":"/x","direction":[]}', "\0"):
        folder = hostile(tmp_path)
        (folder / ".binlogtool-intent").write_text(text)
        with pytest.raises(RefusedError):
            binlogtool.finish_repair(folder)
