"""Every `next:` line can be pasted into a shell, and leads on."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.invoke import Result, invoke
from tests.cli.samples import plain_log

FIRST = ("verify", "truncate-to-durable", "replay-dry-run")
MOST = 5
"""Steps after which a road has to be at its end."""


def lines(result: Result) -> list[str]:
    """The commands that a run names as the next ones."""
    marks = ("next: ", "next      ")
    return [text.removeprefix(mark) for text in result.text.splitlines() for mark in marks if text.startswith(mark)]


def follow(words: list[str], seen: tuple[str, ...] = ()) -> int:
    """Runs a command and all that it leads to; returns how many there were. Who is asked agrees."""
    line = shlex.join(words)
    assert line not in seen, f"a circle: {seen} {line}"
    assert len(seen) < MOST, seen
    agreed = ["-y"] if "--apply" in words or "--apply-plan" in words else []
    result = invoke(*words, *agreed)
    assert result.code in (0, 1, 3, 5) if seen else result.code in (0, 1, 3, 5, 6), (seen, line, result)
    writes = bool(agreed) or "--to-file" in words
    if seen and writes and not lines(result):
        assert result.code == 0, (seen, line, result)
    count = 1
    for text in lines(result):
        assert "-y" not in shlex.split(text) and "--yes" not in text
        program, *more = shlex.split(text)
        assert program == "binlogtool"
        count += follow(more, (*seen, line))
    return count


def small(folder: Path) -> list[Path]:
    """The directories and files below that are logs on their own."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size < 300_000]
    return sorted({path.parent for path in found})


@pytest.mark.parametrize(
    ("kind", "least"),
    [("tarantool", 10), ("drizzle", 10), ("manticore", 30), ("eblob", 0), ("readme", 10), ("mysql_binlog/sets", 0)],
)
def test_every_next_line_of_the_samples_leads_on(
    kind: str, least: int, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least so many commands are named in all; the logs of eblob and of MySQL here are sound and need none."""
    monkeypatch.chdir(tmp_path)
    count = 0
    for number, folder in enumerate(small(samples / kind)):
        for first in FIRST:
            name = f"-d {number} {first}'s"
            shutil.copytree(
                folder, name, ignore=lambda at, names: [n for n in names if os.path.isdir(os.path.join(at, n))]
            )
            count += follow([first, "--", name]) - 1
            for path in sorted(Path(name).iterdir()) if first == "verify" else ():
                if not path.name.endswith((".json", ".jsonl", ".md")):
                    count += follow([first, "--", str(path)]) - 1
    assert count >= least


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind",
    [
        "tarantool",
        "drizzle",
        "manticore",
        "sphinx",
        "eblob",
        "mysql-binlog",
        pytest.param("found", marks=pytest.mark.full_corpus),
    ],
)
def test_every_next_line_of_the_damaged_corpora_leads_on(
    kind: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [path for path in small(corpus / kind) if kind in ("found", "sphinx") or "damaged" in path.parts]
    for number, folder in enumerate(folders):
        for first in FIRST:
            name = f"{number} {first}"
            shutil.copytree(
                folder, name, ignore=lambda at, names: [n for n in names if os.path.isdir(os.path.join(at, n))]
            )
            for path in Path(name).iterdir():
                path.chmod(0o644)
            follow([first, name])
            for path in sorted(Path(name).iterdir())[:40]:
                if path.is_file():
                    follow([first, str(path)])
            shutil.rmtree(name)


def test_after_a_log_without_a_whole_record_no_cut_is_proposed(tmp_path: Path) -> None:
    """A cut that keeps nothing is refused, so it is not what to do next."""
    log = tmp_path / "transaction.log"
    log.write_bytes(plain_log()[:40])
    done = invoke("verify", "-f", "drizzle", str(log))
    (line,) = [line for line in done.text.splitlines() if line.startswith("next: ")]
    assert "truncate-to-durable" not in line and "hexdump-annotate" in line
    assert invoke(*shlex.split(line.removeprefix("next: binlogtool "))).code == 0


def test_a_refused_salvage_names_the_damage_and_a_command_that_works(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flipped bits are in the events at 0x4677 and 0xd0d6 (the corpus' expected.json)."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(corpus / "mysql-binlog/generated/damaged/mariadb-11.8/crc-two-damages.bin", "mariadb-bin.000001")
    done = invoke("truncate-to-durable", "--to-file", "x", "--keep-after-damage", "mariadb-bin.000001")
    first, *_, last = done.text.splitlines()
    assert "at 0x00004677, 0x0000d0d6" in first
    (line,) = [line for line in done.text.splitlines() if line.startswith("next: ")]
    assert invoke(*shlex.split(line.removeprefix("next: binlogtool "))).code == 0
    assert (last, Path("mariadb-bin.000001.sql").exists()) == ("refused; nothing was changed", True)


def test_the_start_and_the_replay_are_two_lines(corpus: Path, tmp_path: Path) -> None:
    shutil.copy(corpus / "mysql-binlog/generated/damaged/mariadb-11.8/crc-two-damages.bin", tmp_path / "bin.000001")
    lines = invoke("diagnose", str(tmp_path)).text.splitlines()
    start = "start     cannot be determined from this log: no .index file is among the files; name the data directory"
    assert start in lines
    assert lines[lines.index(start) + 1].startswith("replay    stops at bin.000001 0x00004677: stored a8fe704e")
