"""What documents show is run: the blocks marked `console` of a Markdown text, one after the other in one place.

A line that starts with `$ ` is a command (`> ` goes on with it), the lines below are what it prints, on both streams. A
line `…` stands for any lines, `…` within a line for any text. Comments that no reader sees say what is needed:

    <!-- sample: tests/corpus/guides/mariadb as mysql -->   a copy of it is there, under this name
    <!-- server: tarantool -->                              the block below needs the real server
    <!-- first: gunzip data/*.gz -->                        run once before the page's commands
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.docs.forking import shim

ROOT = Path(__file__).resolve().parents[2]


class Example(NamedTuple):
    """A command at `line` of its document, and what it prints. server: the one that it needs, or none."""

    line: int
    command: str
    output: list[str]
    server: str = ""


def examples(text: str, programs: tuple[str, ...] = ("",)) -> list[Example]:
    """The commands of a document that start with one of `programs`."""
    found: list[Example] = []
    inside, server, following = False, "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if note := re.fullmatch(r"<!-- server: ([\w-]+) -->", line):
            following = note[1]
        elif line.startswith("```"):
            inside = not inside and line.strip() == "```console"
            server, following = following, ""
        elif inside and line.startswith("$ "):
            found.append(Example(number, line[2:], [], server))
        elif inside and found and line.startswith("> ") and found[-1].command.endswith("\\"):
            found[-1] = found[-1]._replace(command=f"{found[-1].command}\n{line[2:]}")
        elif inside and found:
            found[-1].output.append(line)
    return [e for e in found if e.command.startswith(programs)]


def samples(text: str) -> dict[str, Path]:
    """Name in the workplace -> what it is a copy of."""
    return {
        name: ROOT / source for source, name in re.findall(r"^<!-- sample: (\S+) as (\S+) -->$", text, re.MULTILINE)
    }


def matches(expected: list[str], shown: list[str]) -> bool:
    """Is `shown` what a document says?"""
    return (
        re.fullmatch("".join(map(_pattern, _trimmed(expected))), "".join(f"{s}\n" for s in _trimmed(shown))) is not None
    )


def _pattern(line: str) -> str:
    if line.strip() in ("…", "..."):
        return "(?:.*\n)*?"
    return ".*?".join(map(re.escape, line.rstrip().split("…"))) + "[ \t]*\n"


def _trimmed(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


MADE = ("rows.parquet",)
"""What README's first command leaves in the checkout."""


def make_place(folder: Path, copies: Mapping[str, Path] | None = None) -> Path:
    """A folder that looks like the checkout, where commands may write, with copies of samples."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name not in MADE:
            (folder / entry.name).symlink_to(entry)
    for name, source in (copies or {}).items():
        (folder / name).unlink(missing_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
    (folder / "shims").mkdir()
    for name, text in (("binlogtool", shim()), ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        (folder / "shims" / name).write_text(text)
        (folder / "shims" / name).chmod(0o755)
    return folder


def run(command: str, place: Path, **more: str) -> tuple[int, list[str]]:
    """The exit status and the lines of both streams."""
    environment = {**os.environ, "PATH": f"{place / 'shims'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "TZ": "UTC", **more}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=180, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode("utf-8").splitlines()
