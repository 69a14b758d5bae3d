"""Directories, links and FIFOs that are named like files of the server, against what Tarantool 2.6 did at its start.

`test_the_server_does_what_is_recorded` starts the installed server on the same directories.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import binlogtool
from tests.cli.invoke import invoke
from tests.formats.tarantool.server import program, start

READ, OPEN, LAST = "failed to read '' file", "failed to open './{}' file", "failed to open file './{}'"
EXISTS = "file './00000000000000000087.vylog' already exists"
STARTS = ""
N = "0" * 17
Case = tuple[str, str, str, str]

WITH_ROWS: list[Case] = [
    (f"{N}999.xlog", "directory", READ, STARTS),
    (f"{N}999.xlog", "dangling", OPEN, STARTS),
    (f"{N}999.xlog", "loop", OPEN, STARTS),
    (f"{N}003.xlog", "directory", READ, STARTS),
    (f"{N}003.xlog", "dangling", OPEN, STARTS),
    (f"{N}436.xlog", "directory", READ, LAST),
    (f"{N}436.xlog", "dangling", OPEN, STARTS),
    (f"{N}999.snap", "directory", READ, STARTS),
    (f"{N}999.snap", "dangling", OPEN, STARTS),
    (f"{N}999.vylog", "directory", READ, READ),
    (f"{N}999.vylog", "dangling", STARTS, STARTS),
    (f"{N}999.vylog", "loop", OPEN, OPEN),
    (f"{N}999.xlog.inprogress", "directory", STARTS, STARTS),
    (f"{N}999.snap.inprogress", "dangling", STARTS, STARTS),
    ("foo.xlog", "directory", STARTS, STARTS),
    ("12x.snap", "dangling", STARTS, STARTS),
]
"""Name, kind, what stops the start, and what stops it with force_recovery. {}: the name.."""
WITH_VINYL: list[Case] = [
    (f"{N}000.vylog", "dangling", STARTS, STARTS),
    (f"{N}047.vylog", "dangling", EXISTS, EXISTS),
    (f"{N}050.vylog", "dangling", EXISTS, EXISTS),
    (f"{N}050.vylog", "directory", READ, READ),
    (f"{N}087.vylog", "dangling", STARTS, STARTS),
    ("7.vylog", "file", EXISTS, EXISTS),
]
"""A metadata log that cannot be found ends the server's scan of them without an error."""


def place(folder: Path, name: str, kind: str) -> Path:
    """Put an entry of this kind in the place of a file."""
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to({"dangling": "nowhere", "loop": name}.get(kind, kind))
    return folder


def copied(source: Path, folder: Path) -> Path:
    """Copy a data directory."""
    shutil.copytree(source, folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def predicted(folder: Path, policy: str) -> tuple[bool | None, str]:
    """Return whether the server starts, and what stops it."""
    (result,) = binlogtool.replay([folder], policy=policy)
    return result.starts, "" if result.stop is None else result.stop.why


@pytest.mark.parametrize(("name", "kind", "stop", "forced"), WITH_ROWS)
def test_an_entry_that_is_no_file_stops_the_start_as_it_does_in_the_server(
    samples: Path, tmp_path: Path, name: str, kind: str, stop: str, forced: str
) -> None:
    folder = place(copied(samples / "tarantool" / "chain", tmp_path / "data"), name, kind)
    assert predicted(folder, "server") == (not stop, stop.format(name))
    assert predicted(folder, "force") == (not forced, forced.format(name))


@pytest.mark.full_corpus
@pytest.mark.parametrize(("name", "kind", "stop", "forced"), WITH_VINYL)
def test_a_metadata_log_that_is_no_file_hides_those_after_it(
    corpus: Path, tmp_path: Path, name: str, kind: str, stop: str, forced: str
) -> None:
    folder = place(copied(corpus / "found-3/tarantool-vylog-refs/base", tmp_path / "data"), name, kind)
    assert predicted(folder, "server") == (not stop, stop)
    assert predicted(folder, "force") == (not forced, forced)


@pytest.mark.server
def test_the_server_does_what_is_recorded(corpus: Path, samples: Path, tmp_path: Path) -> None:
    if program() is None:
        pytest.skip("no tarantool is installed")
    bases = [(samples / "tarantool" / "chain", WITH_ROWS)]
    if (corpus / "found-3").exists():
        bases.append((corpus / "found-3/tarantool-vylog-refs/base", WITH_VINYL))
    for source, cases in bases:
        for at, (name, kind, *stops) in enumerate(cases):
            for force, stop in enumerate(stops):
                folder = place(copied(source, tmp_path / f"{source.name}{at}{force}"), name, kind)
                done = start(folder, force_recovery=bool(force), in_place=True)
                assert (done.started, stop.format(name) in done.reason) == (not stop, True), (name, kind, force)


@pytest.mark.parametrize("policy", ["server", "force"])
def test_a_link_to_a_log_leaves_the_start_undetermined(samples: Path, tmp_path: Path, policy: str) -> None:
    log = samples / "tarantool" / "chain" / f"{N}436.xlog"
    folder = place(copied(log.parent, tmp_path / "data"), log.name, str(log))
    starts, why = predicted(folder, policy)
    assert starts is None
    assert why.startswith("not checked: ")


@pytest.mark.parametrize("policy", ["server", "force"])
def test_a_server_waits_for_a_program_that_writes_to_a_fifo(samples: Path, tmp_path: Path, policy: str) -> None:
    """Tarantool 2.6 was not there after 30 seconds."""
    folder = place(copied(samples / "tarantool" / "chain", tmp_path / "data"), f"{N}999.xlog", "FIFO")
    starts, why = predicted(folder, policy)
    assert starts is False
    assert "FIFO" in why


@pytest.mark.parametrize(("kind", "advice"), [("directory", "it is a directory, not a file"), ("dangling", "restore")])
def test_diagnose_names_the_entry_to_move_away(samples: Path, tmp_path: Path, kind: str, advice: str) -> None:
    folder = place(copied(samples / "tarantool" / "chain", tmp_path / "data"), f"{N}999.xlog", kind)
    result = invoke("diagnose", str(folder))
    assert result.code == 1
    assert advice in result.text
    assert f"mv -- {folder}/{N}999.xlog" in result.text
