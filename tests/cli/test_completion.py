"""What shells offer: every value of an enumerated option, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool.findings import EXPLANATIONS
from tests.cli.invoke import ROOT

_ASK = """
eval "$(binlogtool completion bash)"
compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_binlogtool_completion binlogtool
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def program_path(tmp_path: Path) -> str:
    """A PATH with the program of this checkout."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "binlogtool"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m binlogtool "$@"\n')
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def offered(path: str, *words: str) -> list[str]:
    """The answers of a real bash to a line; `=` are words of their own, as it parts them."""
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", _ASK, "bash", "binlogtool", *words],
        capture_output=True, text=True, check=True, env=environment, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


FORMATS = ["tarantool", "drizzle", "manticore", "eblob", "mysql-binlog", "mariadb-innodb-binlog"]
LINES: list[tuple[tuple[str, ...], list[str]]] = [
    (("verify", "-f", ""), ["auto", "list", *FORMATS]),
    (("-f", "m"), ["manticore", "mysql-binlog", "mariadb-innodb-binlog"]),
    (("dump", "-O", ""), ["text", "jsonl", "json", "table", "csv", "raw", "sql"]),
    (("replay-dry-run", "-O", "j"), ["json", "jsonl"]),
    (("verify", "--severity", "torn"), ["torn-tail="]),
    (("verify", "--severity", "torn-tail", "=", ""), ["note", "warning", "error"]),
    (("verify", "--severity", "=", "torn-tail", "=", "e"), ["error"]),
    (("verify", "--fail-on", "=", "n"), ["note", "never"]),
    (("verify", "--ignore", "zero"), ["zero-tail"]),
    (("dump", "--where", "o"), ["object", "origin", "offset"]),
    (("stats", "--where", "'b"), ["body.", "before."]),
    (("convert", "--where", "'type = 1 and af"), ["type = 1 and after."]),
    (("dump", "--where", "\"type = 'X' and (seq > 1 or ti"), ["type = 'X' and (seq > 1 or time"]),
    (("dump", "--where", "\"object = 'ti"), []),
    (("dump", "--where", "'after.na"), []),
    (("verify", "--report", "j"), ["junit=", "json="]),
    (("explain", ""), [*EXPLANATIONS, "0", "1", "2", "3", "4", "5", "6", "7", "70", "130", "143"]),
    (("formats", "e"), ["eblob"]),
    (("schema", "pl"), ["plan"]),
    (("man", "ve"), ["verify"]),
    (("help", "fl"), ["flashback"]),
    (("verify", "--max", ""), ["record=", "inflate=", "depth="]),
    (("rows", "-O", ""), ["text", "csv", "jsonl", "arrow"]),
    (("completion", ""), ["bash", "zsh", "fish", "powershell"]),
    (("verify", "--jobs", ""), []),
    (("dump", "--limit", ""), []),
    (("ver",), ["verify"]),
]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("words", "answers"), LINES, ids=[" ".join(words) for words, _ in LINES])
def test_bash_is_offered_the_values_and_nothing_else(
    program_path: str, words: tuple[str, ...], answers: list[str]
) -> None:
    assert sorted(offered(program_path, *words)) == sorted(answers)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_types_are_those_of_the_format_or_of_the_log_on_the_line(
    program_path: str, plain: Path, tmp_path: Path
) -> None:
    of_format = offered(program_path, "dump", "-f", "tarantool", "--type", "")
    assert {"list", "INSERT", "UPSERT", "CONFIRM"} <= set(of_format) and "RAW_SQL" not in of_format
    of_log = offered(program_path, "dump", str(plain), "--type", "R")
    assert of_log == ["RAW_SQL", "ROLLBACK", "ROLLBACK_STATEMENT"]
    assert "TABLE_MAP" in offered(program_path, "dump", str(tmp_path / "nothing"), "--type", "TABLE")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_columns_are_those_of_the_log_on_the_line(program_path: str, tmp_path: Path) -> None:
    log = str(ROOT / "tests" / "corpus" / "guides" / "mariadb" / "mariadb-bin.000002")
    of_after = ["customer", "id", "item", "pieces", "state", "total"]
    assert offered(program_path, "dump", log, "--where", "'after.") == [f"after.{name}" for name in of_after]
    assert offered(program_path, "stats", log, "--where", "'id = 1 and before.cu") == ["id = 1 and before.customer"]
    assert "body.xid" in offered(program_path, "dump", log, "--where", "'body.x")
    (tmp_path / "none").write_bytes(b"no log")
    assert offered(program_path, "dump", str(tmp_path / "none"), "--where", "'after.") == []


def at_home(home: Path, path: str) -> dict[str, str]:
    """The environment of a shell that keeps its files below `home`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    return own | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(home)}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(program_path: str, shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = {"zsh": "autoload -U compinit; compinit -D; ", "fish": ""}[shell]
    script += {"zsh": 'eval "$(binlogtool completion zsh)"', "fish": "binlogtool completion fish | source"}[shell]
    asked = {"zsh": "print $_comps[binlogtool]", "fish": "complete -C 'binlogtool verify -f ta'"}[shell]
    environment = at_home(tmp_path, program_path)
    words = [shell, *(["-f"] if shell == "zsh" else ["-N"]), "-c", f"{script}; {asked}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0 and ("tarantool" in done.stdout or "_binlogtool_completion" in done.stdout)


_TYPED = r"""
import os, pty, select, sys, time

def until(fd, wanted, seconds=60.0):
    said, end = b"", time.monotonic() + seconds
    while wanted not in said and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                said += os.read(fd, 65536)
            except OSError:
                break
    return said

shell, setup, line, wanted = sys.argv[1:5]
child, fd = pty.fork()
if child == 0:
    os.execvp(shell, [shell, *(["-f"] if shell == "zsh" else ["-N"]), "-i"])
os.write(fd, setup.encode() + b"\n")
until(fd, b"READY:yes")
os.write(fd, line.encode() + b"\t")
said = until(fd, wanted.encode())
os.kill(child, 9)
os.waitpid(child, 0)
sys.exit(0 if wanted.encode() in said else sys.stderr.buffer.write(said) and 1)
"""


@pytest.mark.full
@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("binlogtool verify -f tar", "tarantool"),
        ("binlogtool trun", "truncate-to-durable"),
        ("binlogtool dump LOG --where after.cus", "after.customer"),
    ],
)
def test_a_key_in_other_shells_completes_the_line(
    program_path: str, shell: str, line: str, wanted: str, tmp_path: Path
) -> None:
    """A real shell in a terminal of its own, and Tab."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    log = ROOT / "tests" / "corpus" / "guides" / "mariadb" / "mariadb-bin.000002"
    load = {
        "zsh": 'autoload -U compinit; compinit -D -u; eval "$(binlogtool completion zsh)"',
        "fish": "binlogtool completion fish | source",
    }[shell]
    environment = at_home(tmp_path, program_path) | {"TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", _TYPED, shell, f"{load}; echo READY:'y'es", line.replace("LOG", str(log)), wanted],
        capture_output=True, text=True, check=False, env=environment, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
