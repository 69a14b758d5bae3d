"""Help: what `-h` and `--help` show, on terminals of any width, and names that are nearly right."""

from __future__ import annotations

import re

import pytest

from binlogtool.cli.command_table import COMMAND_GROUPS, COMMANDS
from tests.cli.invoke import invoke
from tests.cli.terminal import on_terminal

MAX_SHORT_LINES = 40
MAX_DESCRIPTION_LINES = 6
GLOBAL_LINE = "Global options: binlogtool --help"
LONG_WORD = re.compile(r"\S{30}")


def headings(text: str) -> list[str]:
    return re.findall(r"^(\S[^\n]*):$", text, re.MULTILINE)


def test_the_groups_of_the_program_have_every_command_once() -> None:
    assert sorted(name for names in COMMAND_GROUPS.values() for name in names) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_short_help_fits_one_screen_and_names_the_rest(command: str) -> None:
    done = invoke(command, "-h")
    lines = done.text.splitlines()
    assert done.code == 0 and len(lines) <= MAX_SHORT_LINES and max(map(len, lines)) <= 80
    assert lines[-2].endswith(f": binlogtool {command} --help") and lines[-1] == GLOBAL_LINE


@pytest.mark.parametrize("command", COMMANDS)
def test_full_help_has_a_short_description_examples_and_statuses_and_no_global_option(command: str) -> None:
    text = invoke(command, "--help").text
    description = text.partition("\n\n")[2].partition("\n\n" + headings(text)[0])[0]
    assert len([line for line in description.splitlines() if line]) <= MAX_DESCRIPTION_LINES
    assert "Examples" in headings(text) and "Exit status" in headings(text)
    assert text.splitlines()[-1] == GLOBAL_LINE and "--max-memory" not in text and "--no-config" not in text


def test_own_options_come_first_and_the_others_in_named_groups() -> None:
    assert headings(invoke("convert", "--help").text)[:8] == [
        "Options", "Selection", "Output", "Tables", "Messages", "SQL", "Damage", "Input",
    ]  # fmt: skip


def test_global_options_are_listed_by_the_program() -> None:
    text = invoke("--help").text
    for name in ("-O, --output-format NAME", "--max-memory SIZE", "--max NAME=VALUE", "--jobs N", "--config FILE"):
        assert text.count(f"  {name}") == 1


@pytest.mark.parametrize("command", ["dump", "convert", "truncate-to-durable"])
@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits_a_terminal_and_is_coloured(command: str, columns: int) -> None:
    shown = on_terminal(command, "--help", columns=columns)
    assert shown.code == 0 and b"\x1b[1mOptions:\x1b[0m" in shown.raw and b"\x1b[36m" in shown.raw
    assert [line for line in shown.lines if len(line) > columns and not LONG_WORD.search(line)] == []


def test_help_is_paged_on_a_terminal_unless_it_is_told_not_to() -> None:
    assert on_terminal("dump", "--help", pager="wc -l").lines[0].strip() == str(
        invoke("dump", "--help").text.count("\n")
    )
    assert "Usage: binlogtool dump" in on_terminal("dump", "--help", "--no-pager", pager="wc -l").lines[0]


def test_colour_of_help_can_be_turned_off() -> None:
    assert b"\x1b[" not in on_terminal("dump", "--help", "--color", "never").raw
    assert b"\x1b[" not in on_terminal("dump", "-h", NO_COLOR="1").raw
    assert b"\x1b[1m" in invoke("dump", "--help", "--color=always").out


def test_examples_of_help_can_be_pasted_at_any_width() -> None:
    shown = on_terminal("verify", "--help", columns=60)
    start = next(i for i, line in enumerate(shown.lines) if "--report junit=verify.xml" in line)
    assert shown.lines[start].endswith(" \\") and shown.lines[start + 1].strip().startswith("--report sarif=")


@pytest.mark.parametrize("words", [("help", "verify"), ("verify", "--help"), ("verify", "--help", "--fail-on", "x")])
def test_help_has_several_ways(words: tuple[str, ...]) -> None:
    done = invoke(*words)
    assert (done.code, done.text) == (0, invoke("help", "verify").text)
    assert invoke("help").text == invoke("--help").text


@pytest.mark.parametrize("command", ["verify", "undo", "completion"])
def test_each_command_knows_the_version(command: str) -> None:
    assert invoke(command, "--version").text == invoke("-V").text == invoke("--version").text


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("verfiy", "x"), "there is no command 'verfiy'; did you mean verify?"),
        (("help", "dmp"), "there is no command 'dmp'; did you mean dump?"),
        (("man", "verfy"), "there is no command 'verfy'; did you mean verify?"),
        (("dump", "-f", "mysql", "x"), "unknown format 'mysql'; did you mean mysql-binlog?"),
        (("formats", "msql"), "there is no format 'msql'; did you mean mysql-binlog?"),
        (("help", "nosuch"), "there is no command 'nosuch'; known: diagnose, verify, dump"),
        (("stats", "--by", "tabel", "x"), "; did you mean object?"),
        (("formats", "tarantol"), "there is no format 'tarantol'; did you mean tarantool?"),
        (("explain", "torn-tial"), "there is no finding or exit status 'torn-tial'; did you mean torn-tail?"),
        (("schema", "pln"), "did you mean plan"),
        (("dump", "-O", "jsnl", "x"), "did you mean jsonl"),
        (("convert", "--to", "parqet", "x"), "did you mean parquet?"),
        (("verify", "--fail-on", "warnings", "x"), "did you mean warning?"),
        (("verify", "--max", "dept=3", "x"), "did you mean depth?"),
        (("verify", "--expect-close", "x"), "--expect-closed"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(words: tuple[str, ...], suggestion: str) -> None:
    done = invoke(*words)
    assert done.code in (2, 4) and suggestion in done.err and done.err.count("\n") == 1


def test_names_of_a_configuration_file_are_suggested(tmp_path: object) -> None:
    from pathlib import Path

    file = Path(str(tmp_path)) / "c.toml"
    file.write_text("[verify]\nfail-onn = 'note'\n")
    assert "verify has no option --fail-onn; did you mean fail-on?" in invoke("--config", str(file), "verify", "x").err
    file.write_text("[verfiy]\n")
    assert "[verfiy] is not a command" in invoke("--config", str(file), "verify", "x").err


def test_limits_have_one_option(plain: object) -> None:
    assert invoke("verify", "--max", "record=1MiB", "--max", "depth=9", str(plain)).code == 0
    assert invoke("--max", "inflate=1MiB", "verify", str(plain)).code == 0
    for value in ("depth=0", "depth=1001", "depth=x", "record", "record=x"):
        done = invoke("verify", "--max", value, str(plain))
        assert (done.code, done.err.count("\n")) == (2, 1), value
