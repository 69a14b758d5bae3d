"""Outputs never replace what the same command line reads, nor each other, nor what appeared meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cli.invoke import ROOT, invoke, program
from tests.cli.samples import plain_log

READS = ("--schema", "--keyfile", "--keyfile-secret", "--baseline", "--config", "--redo", "--state")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "transaction.log"
    path.parent.mkdir()
    path.write_bytes(plain_log())
    return path


@pytest.mark.parametrize("option", READS)
@pytest.mark.parametrize("spelling", ["same", "dots", "symbolic link", "hard link", "through a directory link"])
def test_a_file_that_an_option_reads_is_never_replaced(log: Path, tmp_path: Path, option: str, spelling: str) -> None:
    read = tmp_path / "read"
    read.write_bytes(b"precious")
    output = tmp_path / "other name"
    if spelling == "same":
        output = read
    elif spelling == "dots":
        output = tmp_path / "logs" / ".." / "read"
    elif spelling == "symbolic link":
        output.symlink_to(read)
    elif spelling == "hard link":
        output.hardlink_to(read)
    else:
        output.symlink_to(tmp_path)
        output /= "read"
    read.write_text("" if option == "--config" else "precious")
    before = read.read_bytes()
    for command in (["-o", str(output)], ["--report", f"json={output}"], ["--write-baseline", str(output)]):
        done = invoke("verify", option, str(read), "--overwrite", *command, str(log))
        assert (done.code, read.read_bytes()) == (5, before) and f"({option})" in done.err, command


@pytest.mark.parametrize(
    "words",
    [
        ["truncate-to-durable", "--redo", "R", "--plan", "R"],
        ["truncate-to-durable", "--schema", "R", "--to-file", "R"],
        ["stats", "--schema", "R", "--chart", "R"],
        ["convert", "--to", "raw", "-o", "new", "--keyfile", "R", "--manifest", "R"],
        ["convert", "--to", "raw", "--schema", "R", "-o", "R"],
        ["replay-dry-run", "--against", "R", "-o", "R"],
        ["replay-dry-run", "--compare", "R", "-o", "R"],
        ["verify", "--master", "local[1]", "--conf", "spark.jars=R", "-o", "R"],
    ],
)
def test_other_commands_keep_what_they_read_too(log: Path, tmp_path: Path, words: list[str]) -> None:
    read = tmp_path / "read"
    read.write_bytes(b"precious")
    done = invoke("--overwrite", *[word.replace("R", str(read)) for word in words], str(log))
    assert (done.code, read.read_bytes()) == (5, b"precious")


def test_the_users_own_configuration_is_never_replaced(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "binlogtool" / "config.toml"
    config.parent.mkdir()
    config.write_text("ascii = true\n")
    done = invoke("verify", "--overwrite", "-o", str(config), str(log), environment={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.code == 5 and config.read_text() == "ascii = true\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--report", "json=X", "-o", "X"], ["--report", "json=X", "--report", "html=X"],
        ["--write-baseline", "X", "-o", "logs/../X"], ["--report", "json=link", "-o", "X"],
    ],
)  # fmt: skip
def test_two_outputs_into_one_file_are_refused(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("X")
    done = invoke("verify", "--overwrite", *words, str(log))
    assert done.code == 2 and "write to the same file" in done.err and not Path("X").exists()


def test_a_redirected_standard_input_is_an_input(log: Path) -> None:
    before = log.read_bytes()
    with log.open("rb") as file:
        done = program("dump", "-n1", "-o", str(log), "--overwrite", "-", stdin=file)
    assert (done.returncode, log.read_bytes()) == (5, before)
    with log.open("rb") as file:
        done = program("dump", "-n1", "-o", str(log), "--overwrite", "/dev/stdin", stdin=file)
    assert (done.returncode, log.read_bytes()) == (5, before)


def test_a_link_to_nothing_is_replaced_with_overwrite_only(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    for words in (["dump", "-n1"], ["verify"], ["convert", "--to", "raw"]):
        assert invoke(*words, "-o", str(link), str(log)).code == 5
        assert os.readlink(link) == "nowhere"
    assert invoke("dump", "-n1", "--overwrite", "-o", str(link), str(log)).code == 0 and not link.is_symlink()


def content_of(path: Path) -> object:
    """The target of a link, the names in a directory, the bytes of a file."""
    if path.is_symlink():
        return os.readlink(path)
    return sorted(os.listdir(path)) if path.is_dir() else path.read_bytes()


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_file_that_appears_meanwhile_is_left_as_it_is(log: Path, tmp_path: Path, kind: str) -> None:
    """The log comes through a pipe that is fed when the other file is there."""
    pipe, output = tmp_path / "pipe", tmp_path / "output"
    os.mkfifo(pipe)
    words = [sys.executable, "-m", "binlogtool", "dump", "-n1", "-f", "drizzle", "-o", str(output), str(pipe)]
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as running:
        with pipe.open("wb") as feed:  # the program has opened it, behind its look at the output
            deadline = time.monotonic() + 120
            while not list(tmp_path.glob(".output.*.tmp")) and time.monotonic() < deadline:
                time.sleep(0.05)
            if kind == "file":
                output.write_bytes(b"precious")
            elif kind == "link":
                output.symlink_to("nowhere")
            else:
                output.mkdir()
            feed.write(log.read_bytes())
        assert running.stderr is not None
        said = running.stderr.read()
    assert running.returncode == 5 and b"was created by another process meanwhile and was not replaced" in said
    assert content_of(output) == {"file": b"precious", "link": "nowhere", "directory": []}[kind]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", "output", "pipe"]


@pytest.mark.parametrize(("to", "name"), [("raw", "output"), ("jsonl", "output")])
def test_a_converted_file_replaces_nothing_that_appeared_meanwhile(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, name: str
) -> None:
    from binlogtool.export import atomic_output

    output = tmp_path / name
    sync = atomic_output._sync_tree

    def late(stage: Path) -> None:
        sync(stage)
        output.write_bytes(b"precious")

    monkeypatch.setattr(atomic_output, "_sync_tree", late)
    done = invoke("convert", "--to", to, "-o", str(output), str(log))
    assert (done.code, output.read_bytes()) == (5, b"precious")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logs", name]


def test_names_are_given_exclusively_with_and_without_the_system_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from binlogtool import rename_without_replacing

    for has_call in (True, False):
        if not has_call:
            monkeypatch.setattr(rename_without_replacing, "_try_rename_exclusively", lambda _source, _target: False)
        wins = []
        target = tmp_path / f"target-{has_call}"
        sources = [tmp_path / f"source-{has_call}-{number}" for number in range(8)]

        def give(source: Path, target: Path = target, wins: list[Path] = wins) -> None:
            source.write_bytes(source.name.encode())
            try:
                rename_without_replacing.rename_without_replacing(source, target)
                wins.append(source)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=give, args=(source,)) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1 and target.read_bytes() == wins[0].name.encode()
        assert [source.exists() for source in sources].count(True) == 7
