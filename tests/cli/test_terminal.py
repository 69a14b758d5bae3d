"""What is seen on terminals: lines that fit, progress that never stands in the data, signs that can be shown."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from binlogtool.terminal import progress_display as progress_module
from binlogtool.terminal.escape_and_fold_text import can_draw_boxes, count_columns, fold_line
from binlogtool.terminal.progress_display import ProgressDisplay
from tests.cli.invoke import invoke, program
from tests.cli.samples import plain_log
from tests.cli.terminal import Shown, on_terminal
from tests.sampling import take_sample

PROGRESS = re.compile(r"\d %|/s\b")


@pytest.fixture
def xlog(samples: Path) -> str:
    return str(samples / "tarantool" / "chain" / "00000000000000000000.xlog")


@pytest.fixture
def long(tmp_path: Path, way: str) -> str:
    """A log whose reading takes longer than progress waits before it shows itself; a replay takes longest."""
    path = tmp_path / "long.log"
    path.write_bytes(plain_log(1000) * (70 if way == "replay" else 208))
    return str(path)


def wide(shown: Shown, columns: int) -> list[str]:
    return [line for line in shown.lines if count_columns(line) > columns]


def shown_bytes(lines: list[str]) -> bytes:
    """The bytes in the hexadecimal column."""
    found = [line.split("│")[1] for line in lines if line.count("│") >= 3]
    return b"".join(bytes.fromhex(text) for text in found if re.fullmatch(r"[0-9a-f ]*", text))


@pytest.mark.full
@pytest.mark.parametrize("columns", [80, 40, 132])
def test_an_annotated_hexdump_fits_the_terminal_and_loses_nothing(xlog: str, columns: int) -> None:
    shown = on_terminal("hexdump-annotate", "--record", "1", xlog, columns=columns)
    assert shown.code == 0 and wide(shown, columns) == []
    piped = program("hexdump-annotate", "--record", "1", xlog).stdout.decode()
    whole = shown_bytes(piped.splitlines())
    assert len(whole) > 40 and shown_bytes(shown.lines) == whole
    words = "".join("".join(line.split("│")[-1] for line in shown.lines).split())
    for label in ("block[1].payload.rows[0].header.type=2(INSERT)", '.body.tuple[3]="memtx"', "ok(crc32cof0xaf..0xd6)"):
        assert label in words


@pytest.mark.full
@pytest.mark.parametrize(("columns", "width"), [(80, 8), (40, 4), (132, 16)])
def test_the_bytes_in_a_line_go_down_with_the_terminal(xlog: str, columns: int, width: int) -> None:
    heading = on_terminal("hexdump-annotate", "--record", "1", xlog, columns=columns).lines[0]
    assert heading.split()[-1] == f"{width - 1:02x}"


def test_a_width_that_is_asked_for_is_kept(xlog: str) -> None:
    assert on_terminal("hexdump-annotate", "--record", "1", "--width", "6", xlog).lines[0].split()[-1] == "05"


@pytest.mark.full
@pytest.mark.parametrize("columns", [80, 40])
def test_a_report_of_verify_fits_the_terminal_and_says_the_same(damaged: Path, columns: int) -> None:
    shown = on_terminal("verify", str(damaged), columns=columns)
    assert shown.code == 1
    path = str(damaged)
    assert [line for line in wide(shown, columns) if line.strip() not in path] == []
    piped = program("verify", path).stdout.decode()
    assert "".join("".join(shown.lines).split()).replace("\\", "") == "".join(piped.split())


def test_a_command_to_paste_is_parted_as_a_shell_takes_it() -> None:
    path = "/a path/with  two blanks/and a very long name.log"
    line = f"next: binlogtool hexdump-annotate --at 0x10 '{path}' --redo x"
    lines = fold_line(line, 40)
    assert lines[:2] == ["next: binlogtool hexdump-annotate --at \\", "    0x10 \\"]
    assert "    '/a path/with  two blanks/and a very long name.log' \\" in lines
    told = program_words("\n".join(lines).removeprefix("next: binlogtool "))
    assert told == [
        "hexdump-annotate",
        "--at",
        "0x10",
        "/a path/with  two blanks/and a very long name.log",
        "--redo",
        "x",
    ]


@pytest.mark.parametrize("command", ["binlogtool undo --apply", "python3 /opt/binlogtool.pyz undo", "cp -a --"])
def test_a_command_on_a_line_of_its_own_is_parted_as_a_shell_takes_it(command: str) -> None:
    path = "/var/lib/" + "a-long-directory/" * 4 + "binlog.001"
    lines = fold_line(f"            {command} {path}", 40)
    assert f"'{path}'".strip("'") in [line.strip() for line in lines]
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert program_words("\n".join(lines)) == [*command.split(), path]


def program_words(text: str) -> list[str]:
    import subprocess

    done = subprocess.run(["sh", "-c", f"printf '%s\\n' {text}"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@contextmanager
def error_terminal(monkeypatch: pytest.MonkeyPatch, tick_seconds: float) -> Iterator[int]:
    """Make standard error a terminal; what is written can be read from the descriptor."""
    monkeypatch.setitem(progress_module._TICK_SECONDS, "auto", tick_seconds)
    outer, inner = os.openpty()
    os.set_blocking(outer, False)
    with open(inner, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        yield outer
    os.close(outer)


def read_all(terminal: int) -> str:
    """Return the output, read until nothing more comes for a moment."""
    shown = b""
    while select.select([terminal], [], [], 0.3)[0]:
        shown += os.read(terminal, 10_000)
    return shown.decode()


def read_until(terminal: int, text: str, count: int) -> str:
    """Return the output up to the time when it holds the text so many times."""
    shown, deadline = b"", time.monotonic() + 120
    while shown.decode().count(text) < count:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 10_000)
    return shown.decode()


def test_the_elapsed_time_is_shown_also_while_no_progress_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with error_terminal(monkeypatch, 0.05) as terminal:
        progress = ProgressDisplay("auto", "convert")
        progress.start_ticking()
        progress.update_stage("convert: starting Spark", 0, total=1)
        shown = read_until(terminal, "convert: starting Spark: ", 2)
        progress.finish_display()
        shown += read_all(terminal)
    assert "convert: starting Spark: 0 s elapsed" in shown
    assert shown.endswith("\r\x1b[K")


@pytest.mark.parametrize(
    "stop", [ProgressDisplay.clear_line, ProgressDisplay.disable_line, ProgressDisplay.finish_display]
)
def test_the_elapsed_time_is_not_shown_during_a_prompt_or_after_data(
    stop: Callable[[ProgressDisplay], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with error_terminal(monkeypatch, 0.02) as terminal:
        progress = ProgressDisplay("auto", "truncate-to-durable")
        progress.start_ticking()
        stop(progress)
        time.sleep(0.1)
        progress.finish_display()
        os.write(sys.stderr.fileno(), b"prompt")
        assert read_all(terminal) == "prompt"


def test_a_message_is_on_its_own_line_and_the_elapsed_time_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    with error_terminal(monkeypatch, 0.05) as terminal:
        progress = ProgressDisplay("auto", "convert")
        progress.start_ticking()
        shown = read_until(terminal, "elapsed", 1)
        with progress.hide_line():
            os.write(sys.stderr.fileno(), b"message\n")
        shown += read_until(terminal, "message\r\n", 1)
        if "elapsed" not in shown.partition("message\r\n")[2]:
            shown += read_until(terminal, "elapsed", 1)
        progress.finish_display()
        before, after = (shown + read_all(terminal)).split("message\r\n")
    assert before.endswith("\r\x1b[K") and "elapsed" in after


def test_progress_never_says_that_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = ProgressDisplay(command="convert")
    progress.update_stage("convert: starting Spark", 0, total=1)
    now[0] += 7
    assert progress._format_line() == "binlogtool: convert: starting Spark: 7 s elapsed"
    progress.update_stage("convert: converting", 0, total=1000)
    now[0] += 3
    progress.update_stage("convert: converting", 500, total=1000)
    assert "50 %" in progress._format_line() and progress._format_line().endswith(", 3 s left")
    progress.update_stage("convert: converting", 999, total=1000)
    assert progress._format_line().endswith(", 3 s elapsed")
    progress.update_stage("convert: converting", 1000, total=1000)
    assert progress._format_line().endswith("finishing, 3 s elapsed")
    progress.advance("out.jsonl", 300, 300)
    assert progress._format_line().startswith("binlogtool: convert out.jsonl: ")


@pytest.mark.parametrize("width", [20, 31, 40, 80])
def test_folding_loses_no_letter(width: int) -> None:
    line = (
        "  error    0x00001229  checksum-mismatch    record 62  "
        + "a.b/" * 30
        + " 表 \x1b[31;1mred words here\x1b[0m end"
    )
    lines = fold_line(line, width)
    assert max(map(count_columns, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(line.split())


WAYS = {
    "dump": ["dump", "-O", "jsonl", "-n", "5000"],
    "text": ["dump", "--no-pager", "-n", "5000"],
    "verify": ["verify"],
    "hexdump": ["hexdump-annotate", "--limit", "400"],
    "replay": ["replay-dry-run"],
    "plan": ["truncate-to-durable"],
}


@pytest.mark.full
@pytest.mark.parametrize("way", take_sample(WAYS, 2))
def test_progress_never_stays_in_the_data_on_the_same_terminal(long: str, way: str) -> None:
    shown = on_terminal(*WAYS[way], long)
    assert shown.code in (0, 1)
    assert [line for line in shown.lines if PROGRESS.search(line) and "100 %" not in line] == []


@pytest.mark.full
@pytest.mark.parametrize("way", take_sample(["dump", "hexdump"], 2, 1))
def test_no_progress_is_written_after_the_first_data_on_a_terminal(long: str, way: str) -> None:
    raw = on_terminal(*WAYS[way], long).raw
    assert b"\x1b[K" not in raw[raw.index(b"\n") :]


@pytest.mark.full
@pytest.mark.parametrize(
    ("way", "columns"),
    [
        *(("dump", 40), ("replay", 80)),
        *(pytest.param(way, 40, marks=pytest.mark.nightly) for way in ("verify", "replay", "plan")),
        *(pytest.param(way, 80, marks=pytest.mark.nightly) for way in ("dump", "verify", "plan")),
    ],
)
def test_progress_has_a_share_a_rate_and_a_time_and_fits(long: str, tmp_path: Path, way: str, columns: int) -> None:
    words = ["dump", "-O", "jsonl"] if way == "dump" else [*WAYS[way], "-O", "json"]
    shown = on_terminal(*words, "-o", str(tmp_path / "out"), long, columns=columns)
    steps = [step for step in shown.raw.decode().split("\r\x1b[K") if PROGRESS.search(step)]
    assert steps, shown.raw
    assert max(len(step) for step in steps) < columns
    whole = r"MiB of \d.* MiB, .*/s, \d+ %, \d+ s (left|elapsed)$" if columns == 80 else r"\d+ %, \d+ s (left|elapsed)$"
    assert any(re.search(whole, step.rstrip()) for step in steps)
    assert shown.lines[-1] == ""


def test_progress_on_one_line_is_shortened_from_its_least_important_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = ProgressDisplay("never", "verify")
    progress.start_pass(4 << 20)
    now[0] += 2
    for end in (1 << 19, 1 << 20):
        progress.advance("/a/rather/long/path/to/00000000000000000042.xlog", end, 1 << 19)
    for width in (120, 79, 60, 39, 25):
        line = progress._format_line(width)
        assert count_columns(line) <= width and "25 %" in line and (line.endswith(" s left") or width == 25)
    assert "42.xlog: " in progress._format_line(60)


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1", "cp1252"])
def test_an_encoding_without_box_characters_falls_back_by_itself(xlog: str, encoding: str) -> None:
    for words in (["hexdump-annotate", "--record", "1"], ["dump", "-O", "table"], ["verify"]):
        done = invoke(*words, xlog, encoding=encoding)
        text = done.out.decode(encoding)
        assert done.code == 0 and "\\u2" not in text and "\\xb7" not in text
        assert ("|" in text) == (words != ["verify"])


@pytest.mark.full
def test_a_terminal_of_the_c_locale_gets_no_box_characters(xlog: str) -> None:
    words = ("hexdump-annotate", "--record", "1", xlog)
    for environment in ({"LC_ALL": "C"}, {"LANG": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        shown = on_terminal(*words, **environment)
        assert shown.code == 0 and shown.raw.isascii() and b" | " in shown.raw
    assert "│".encode() in on_terminal(*words).raw


def test_what_is_told_of_a_locale_decides_and_an_output_for_programs_stays() -> None:
    assert can_draw_boxes("utf-8", False) and not can_draw_boxes("ascii", False) and not can_draw_boxes("koi8-r", True)


def test_data_in_other_letters_is_still_escaped_where_they_cannot_be_shown(tmp_path: Path) -> None:
    from tests.cli.samples import raw_sql

    path = tmp_path / "letters.log"
    path.write_bytes(raw_sql(1, "SELECT 'ж'".encode()))
    assert b"\\u0436" in invoke("dump", str(path), encoding="ascii").out


def test_several_processes_are_replaced_by_one_where_the_system_lacks_them(
    plain: Path, torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import multiprocessing.context

    def refused(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(multiprocessing.context.SpawnContext, "SimpleQueue", refused)
    monkeypatch.setattr(multiprocessing.context.SpawnContext, "Queue", refused)
    monkeypatch.setattr(multiprocessing.context.SpawnContext, "Lock", refused)
    done = invoke("verify", "--jobs", "3", str(plain), str(torn))
    assert done.out == invoke("verify", str(plain), str(torn)).out and done.code == 0
    assert len(done.err.splitlines()) == 1 and "--jobs" in done.err and "/dev/shm" in done.err


@pytest.mark.full
def test_what_several_processes_find_is_what_one_finds(plain: Path, torn: Path, damaged: Path) -> None:
    paths = [str(plain), str(torn), str(damaged)]
    several = program("verify", "--jobs", "3", *paths)
    assert several.stdout == program("verify", *paths).stdout and several.stdout
    if not os.access("/dev/shm", os.W_OK):
        assert b"--jobs" in several.stderr
