"""Global options on both sides of the command, in the environment and in a file; output files; helpers."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path

import pytest

from binlogtool import __version__
from binlogtool.findings import EXPLANATIONS
from binlogtool.terminal.progress_display import ProgressDisplay
from tests.cli.invoke import ROOT, invoke, program
from tests.cli.samples import raw_sql


def test_global_options_stand_before_or_behind_the_command(plain: Path) -> None:
    path = str(plain)
    lines = [
        ["-f", "drizzle", "-O", "json", "verify", path],
        ["verify", "-f", "drizzle", "-O", "json", path],
        ["verify", path, "-f", "drizzle", "-O", "json"],
        ["-f", "drizzle", "verify", path, "--output-format=json"],
    ]
    results = [invoke(*words) for words in lines]
    assert {r.code for r in results} == {0}
    assert len({r.out for r in results}) == 1


def test_the_option_behind_the_command_wins(plain: Path) -> None:
    assert json.loads(invoke("-O", "text", "verify", str(plain), "-O", "json").out)


def test_a_path_may_look_like_an_option(tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain.rename(tmp_path / "-x.log")
    assert invoke("verify", "--", "-x.log").code == 0
    (tmp_path / "-x.log").rename(tmp_path / "--hex")
    assert invoke("dump", "-O", "jsonl", "--", "--hex").out.count(b"\n") == 3


@pytest.mark.parametrize("where", [[], ["verify"]])
def test_formats_are_listed_by_the_option(where: list[str]) -> None:
    done = invoke(*where, "--format", "list")
    assert done.code == 0
    assert {"tarantool", "drizzle"} <= {line.split()[0] for line in done.text.splitlines() if line[:1].strip()}


def test_options_come_from_the_environment(torn: Path) -> None:
    assert invoke("verify", str(torn), environment={"BINLOGTOOL_VERIFY_FAIL_ON": "note"}).code == 1
    assert json.loads(invoke("verify", str(torn), environment={"BINLOGTOOL_OUTPUT_FORMAT": "json"}).out)
    assert json.loads(invoke("verify", str(torn), environment={"BINLOGTOOL_VERIFY_OUTPUT_FORMAT": "json"}).out)


def test_options_come_from_a_file(torn: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('output-format = "json"\n[verify]\nfail-on = "note"\nignore = []\n')
    for words in (["--config", str(file), "verify", str(torn)], ["verify", str(torn), f"--config={file}"]):
        done = invoke(*words)
        assert done.code == 1 and json.loads(done.out)
    done = invoke("verify", str(torn), environment={"BINLOGTOOL_CONFIG": str(file)})
    assert done.code == 1
    ignored = invoke("verify", str(torn), "--no-config", environment={"BINLOGTOOL_CONFIG": str(file)})
    assert ignored.code == 0 and ignored.out.startswith(str(torn).encode())


def test_the_users_file_is_found(torn: Path, tmp_path: Path) -> None:
    file = tmp_path / "binlogtool" / "config.toml"
    file.parent.mkdir()
    file.write_text('[verify]\nfail_on = "note"\n')
    assert invoke("verify", str(torn), environment={"XDG_CONFIG_HOME": str(tmp_path)}).code == 1


def test_a_file_in_the_working_directory_is_not_read(
    torn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text('[verify]\nfail-on = "note"\n')
    (tmp_path / "binlogtool.toml").write_text('[verify]\nfail-on = "note"\n')
    monkeypatch.chdir(tmp_path)
    assert invoke("verify", str(torn)).code == 0


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(torn: Path, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[verify]\nfail-on = "note"\n')
    never = {"BINLOGTOOL_VERIFY_FAIL_ON": "never"}
    assert invoke("--config", str(file), "verify", str(torn)).code == 1
    assert invoke("--config", str(file), "verify", str(torn), environment=never).code == 0
    assert invoke("--config", str(file), "verify", "--fail-on", "note", str(torn), environment=never).code == 1


@pytest.mark.parametrize("option", ["apply", "yes", "allow-discard-valid"])
def test_some_options_come_from_the_command_line_only(torn: Path, tmp_path: Path, option: str) -> None:
    name = f"BINLOGTOOL_TRUNCATE_TO_DURABLE_{option.upper().replace('-', '_')}"
    assert invoke("truncate-to-durable", str(torn), environment={name: "1"}).code == 0
    file = tmp_path / "config.toml"
    file.write_text(f"[truncate-to-durable]\n{option} = true\n")
    done = invoke("--config", str(file), "truncate-to-durable", str(torn))
    assert done.code == 2 and "can only be given on the command line" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[verify]\nnothing = 1\n", "has no option --nothing"),
        ("nothing = 1\n", "has no option --nothing"),
        ("[verify\n", "config.toml"),
        ('[verify]\nfail-on = "sometimes"\n', "sometimes"),
        ("\x00", "config.toml"),
    ],
)
def test_a_wrong_file_is_a_usage_error(torn: Path, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    done = invoke("--config", str(file), "verify", str(torn))
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1


def test_a_missing_file_is_an_error_only_if_it_is_named(torn: Path, tmp_path: Path) -> None:
    assert invoke("--config", str(tmp_path / "no.toml"), "verify", str(torn)).code == 4


def test_output_appears_complete_and_is_not_replaced(plain: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    words = ["dump", "-O", "jsonl", "-o", str(target), str(plain)]
    done = invoke(*words)
    assert (done.code, done.out) == (0, b"")
    assert len(target.read_bytes().splitlines()) == 3
    assert invoke(*words).code == 5
    assert invoke(*words, "--limit", "1").code == 5
    assert len(target.read_bytes().splitlines()) == 3
    assert invoke(*words, "--limit", "1", "--overwrite").code == 0
    assert len(target.read_bytes().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "plain.log"]


def test_output_has_the_usual_permissions(plain: Path, tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        invoke("dump", "-o", str(tmp_path / "out"), str(plain))
    finally:
        os.umask(old)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_an_input_is_never_overwritten(plain: Path, tmp_path: Path) -> None:
    before = plain.read_bytes()
    link = tmp_path / "link.log"
    link.symlink_to(plain)
    for target in (plain, link):
        done = invoke("dump", "--overwrite", "-o", str(target), str(plain))
        assert done.code == 5 and "is an input" in done.err
    assert invoke("verify", "--overwrite", "--report", f"json={plain}", str(plain)).code == 5
    assert plain.read_bytes() == before


def test_a_member_of_an_input_directory_is_never_overwritten(plain: Path) -> None:
    done = invoke("verify", "--overwrite", "-f", "drizzle", "-o", str(plain), str(plain.parent))
    assert done.code == 5
    assert plain.stat().st_size == 285


def test_a_failed_run_leaves_no_output(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\x7fELF" + bytes(64))
    assert invoke("dump", "-o", str(tmp_path / "out"), str(other)).code == 3
    assert [p.name for p in tmp_path.iterdir()] == ["other"]


def test_output_into_a_missing_directory_is_status_4(plain: Path, tmp_path: Path) -> None:
    done = invoke("dump", "-o", str(tmp_path / "no" / "out"), str(plain))
    assert done.code == 4 and done.err.count("\n") == 1


@pytest.mark.parametrize("size", ["12.5", "many", "-1", "4QiB"])
def test_wrong_sizes_are_usage_errors(plain: Path, size: str) -> None:
    assert invoke("verify", "--max", f"record={size}", str(plain)).code == 2


def test_records_over_the_ceiling_are_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(raw_sql(1, b"x") + raw_sql(2, b"y" * (3 << 20)))
    assert invoke("verify", str(path)).code == 0
    done = invoke("verify", "-O", "json", "--max", "record=0x10000", str(path))
    value = json.loads(done.out)
    assert done.code == 6 and value["status"] == "incomplete"
    assert value["files"][0]["records"] == 1


@pytest.mark.parametrize(
    ("environment", "words", "coloured"),
    [
        ({}, [], False),
        ({"FORCE_COLOR": "1"}, [], True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, [], False),
        ({"NO_COLOR": "1"}, ["--color", "always"], True),
        ({"FORCE_COLOR": "1"}, ["--color", "never"], False),
    ],
)
def test_colour_follows_the_customs(plain: Path, environment: dict[str, str], words: list[str], coloured: bool) -> None:
    clean = {"NO_COLOR": "", "FORCE_COLOR": "", **environment}
    assert (b"\x1b[" in invoke("verify", *words, str(plain), environment=clean).out) is coloured


@pytest.mark.full
def test_progress_is_never_among_the_records(plain: Path) -> None:
    done = program("dump", "--progress", "json", "-F", "--timeout", "3s", "--poll", "100ms", "-O", "jsonl", str(plain))
    assert len(done.stdout.splitlines()) == 3


def test_progress_goes_to_standard_error_as_json(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line in two seconds: the second step comes at once and has none."""
    progress, later = ProgressDisplay("json", "verify"), time.monotonic() + 3
    progress.start_pass(4096)
    monkeypatch.setattr(time, "monotonic", lambda: later)
    progress.advance("a.log", 1024, 512)
    progress.advance("a.log", 2048, 512)
    captured = capfd.readouterr()
    shown = json.loads(captured.err)
    assert captured.out == "" and captured.err.count("\n") == 1
    assert (shown["schema"], shown["what"]) == ("binlogtool/progress/1", "verify a.log")
    assert (shown["done"], shown["total"]) == (1024, 4096)


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version").text == f"binlogtool {__version__}\n"
    more = invoke("--version", "-v").text
    assert "tarantool, drizzle" in more and "crc32c by crc32c" in more and "construct 2.10.70" in more
    assert invoke("-v", "-V").text == more


def test_explain_knows_every_id_and_no_other() -> None:
    assert "what to do" in invoke("explain", "torn-tail").text
    assert invoke("explain", "torn-tale").code == 2
    listed = json.loads(invoke("explain", "-O", "json").out)["findings"]
    assert set(listed[0]) == {"id", "severity", "meaning", "causes", "action"}
    assert {one["id"] for one in listed} == set(EXPLANATIONS)


@pytest.mark.parametrize("code", ["0", "1", "2", "3", "4", "5", "6", "7", "70", "130", "143"])
def test_explain_knows_every_exit_status(code: str) -> None:
    done = invoke("explain", code)
    assert done.code == 0 and done.text.startswith(f"exit status {code}\n") and "what to do" in done.text
    statuses = json.loads(invoke("explain", "-O", "json", code).out)["statuses"]
    assert len(statuses) == 1 and code in statuses[0]["status"].split(", ")
    assert invoke("explain", "8").code == 2


def test_the_top_level_help_tells_what_convert_writes() -> None:
    line = " ".join(invoke("--help").text.split()).partition(" convert ")[2].partition(" stats ")[0]
    for word in ("Parquet", "ORC", "CSV", "JSON", "Avro", "scripts", "another log"):
        assert word in line


@pytest.mark.parametrize("name", ["tarantool", "drizzle"])
def test_a_format_is_described(name: str) -> None:
    text = invoke("formats", name).text
    assert "Record types" in text and "References" in text
    value = json.loads(invoke("formats", name, "-O", "json").out)
    assert value["name"] == name and value["types"] and value["members"]


def test_unknown_names_are_usage_errors() -> None:
    for words in (
        ["formats", "nothing"],
        ["schema", "nothing"],
        ["man", "nothing"],
        ["nothing"],
        ["-f", "nothing", "verify", "x"],
    ):
        done = invoke(*words)
        assert done.code == 2, words
        assert done.err.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str) -> None:
    done = invoke("completion", shell)
    assert done.code == 0 and "_BINLOGTOOL_COMPLETE" in done.text


def test_powershell_has_a_script() -> None:
    done = invoke("completion", "powershell")
    assert done.code == 0 and done.err == ""
    assert b"Register-ArgumentCompleter" in done.out and b"_BINLOGTOOL_COMPLETE" in done.out


def test_completion_answers() -> None:
    environment = {"_BINLOGTOOL_COMPLETE": "bash_complete", "COMP_WORDS": "binlogtool ver", "COMP_CWORD": "1"}
    done = program(env=environment)
    assert (done.returncode, done.stdout) == (0, b"plain,verify\n")
    environment |= {"COMP_WORDS": "binlogtool verify --fail", "COMP_CWORD": "2"}
    assert program(env=environment).stdout == b"plain,--fail-on\n"


def test_the_manual_page_is_found_and_printed() -> None:
    done = invoke("man", "verify")
    assert done.code == 0 and done.text.startswith('.TH "BINLOGTOOL-VERIFY" "1"')
    path = invoke("man", "verify", "--path")
    assert Path(path.text.strip()).read_bytes() == done.out


def test_the_group_without_a_command_shows_its_help() -> None:
    done = invoke()
    assert done.code == 2 and "Read and convert:" in done.text
    assert invoke("--help").code == 0


def test_the_first_table_of_a_configuration_file_that_is_no_command_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("".join(f"[wrong{number}]\nhead = 1\n" for number in (7, 3, 9, 1, 8, 2, 6, 4, 5)))
    assert "[wrong7] is not a command" in invoke("--config", str(config), "formats").err


@pytest.mark.parametrize("value", ['"shop.orders"', '["shop.orders"]'])
def test_a_repeatable_option_in_the_configuration_can_be_one_text_or_a_list(value: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(f"[dump]\nobject = {value}\n")
    done = invoke("dump", "-O", "csv", "--config", str(tmp_path / "c.toml"), str(ROOT / "tests/corpus/guides/mariadb"))
    assert done.code == 0
    assert {row["object"] for row in csv.DictReader(done.text.splitlines())} == {
        "",
        "shop.orders",
    }  # "": its CREATE TABLE
