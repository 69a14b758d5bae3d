"""H1: no control character from any input reaches standard output or error unescaped, whatever command and output."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.invoke import Result, invoke
from tests.cli.samples import insert, raw_sql

CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""C0 but LF, DEL, C1, bidi and zero-width characters, line and paragraph separators, surrogates."""

NASTY = "\x1b[31m\x1b]0;t\x07\x9b1m\x85\x00\x08\x7f\r\n\u202e\u2066\u200f\u2028\ufeff[link=x]y[/foo]`|=1+1"

COMMANDS = [
    ["verify"],
    ["verify", "-O", "json"],
    ["verify", "--report", "github"],
    ["dump"],
    ["dump", "--hex"],
    ["dump", "-O", "jsonl"],
    ["dump", "-O", "json"],
    ["dump", "-O", "csv"],
    ["dump", "-O", "table"],
    ["dump", "-O", "table", "--ascii"],
    ["stats"],
    ["stats", "-O", "json"],
    ["stats", "-O", "csv"],
    ["dump", "--bytes", "escape", "-O", "jsonl"],
    ["hexdump-annotate"],
    ["hexdump-annotate", "-O", "json"],
    ["hexdump-annotate", "-O", "html"],
    ["hexdump-annotate", "--ascii"],
    ["truncate-to-durable"],
    ["truncate-to-durable", "-O", "json"],
    ["diagnose"],
    ["diagnose", "-O", "json"],
    ["diagnose", "-O", "markdown"],
]


def check(done: Result, words: list[str]) -> None:
    for shown in (done.out.decode("utf-8"), done.err):
        found = CONTROLS.search(shown)
        assert found is None, f"{words}: {found[0]!r} in {shown[max(0, found.start() - 60) : found.end() + 20]!r}"
    assert "internal error" not in done.err, done.err


def hostile_log(text: str) -> bytes:
    """Text as SQL, as name of schema and table, and as value; then a damaged record, then bytes that are no text."""
    raw = text.encode("utf-8", "surrogatepass")
    good = raw_sql(1, raw) + insert(2, raw, raw, raw)
    bad = bytearray(insert(3, b"s", raw, raw))
    bad[-1] ^= 1
    return good + bytes(bad) + insert(4, b"s", b"t", b"\xff\xfe" + raw) + raw_sql(5, b"ok")[:-3]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_hostile_records_and_names_are_shown_harmlessly(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\n\u202e\x9b.log"
    path.write_bytes(hostile_log(NASTY))
    done = invoke(*words, str(path))
    check(done, words)
    assert done.out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_name_that_is_no_utf_8_is_shown(words: list[str], tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe\x9b.log")
    Path(path).write_bytes(hostile_log("x"))
    done = invoke(*words, path)
    check(done, words)
    assert done.out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_hostile_name_of_nothing_is_one_line(words: list[str], tmp_path: Path) -> None:
    done = invoke(*words, str(tmp_path / NASTY.replace("\x00", "").replace("/", "")))
    check(done, words)
    assert done.code == 4
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        [NASTY],
        ["--" + NASTY],
        ["verify", "--" + NASTY],
        ["verify", "--depth", NASTY, "x"],
        ["-f", NASTY, "verify", "x"],
        ["-O", NASTY, "verify", "/dev/null"],
        ["explain", NASTY],
        ["formats", NASTY],
        ["schema", NASTY],
        ["man", NASTY],
        ["completion", NASTY],
        ["dump", "-j", NASTY, "/dev/null"],
        ["dump", "--start-datetime", NASTY, "x"],
        ["verify", "--ignore", NASTY, "x"],
        ["verify", "--severity", NASTY, "x"],
        ["verify", "--report", NASTY, "x"],
        ["dump", "--fields", NASTY, "-O", "csv", "/dev/null"],
        ["--max-memory", NASTY, "verify", "x"],
        ["--timeout", NASTY, "verify", "x"],
        ["dump", "--type", NASTY, "/dev/null"],
        ["dump", "--object", NASTY, "/dev/null"],
    ],
    ids=lambda words: words[0][:10] if len(words) == 1 else " ".join(w for w in words if w != NASTY)[:30],
)
def test_hostile_arguments_are_shown_harmlessly(words: list[str]) -> None:
    done = invoke(*[w.replace("\x00", "") for w in words])
    check(done, words)
    assert done.code in (0, 2, 3)


def test_hostile_files_of_every_report_kind_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b\u202e.log"
    path.write_bytes(hostile_log(NASTY))
    kinds = ("junit", "sarif", "gitlab", "json", "markdown", "html")
    done = invoke("verify", *[w for k in kinds for w in ("--report", f"{k}={tmp_path / k}")], str(path))
    check(done, ["--report"])
    for kind in kinds:
        found = CONTROLS.search((tmp_path / kind).read_text("utf-8"))
        assert found is None, kind


def test_the_configuration_file_cannot_reach_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "c\x1b.toml"
    for text in ('"\\u001b[31m" = 1\n', '[verify]\n"\\u009b" = 1\n', "\x1b[31m", 'format = "\\u001b[31m"\n'):
        file.write_text(text)
        done = invoke("--config", str(file), "verify", str(file))
        check(done, [text])
        assert done.code == 2


LINES = [["verify"], ["dump"], ["dump", "-O", "jsonl"], ["dump", "-O", "csv"], ["dump", "-O", "table"],
         ["stats"], ["hexdump-annotate"]]  # fmt: skip


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_in_records_is_shown_harmlessly(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(hostile_log(text))
    for words in LINES:
        check(invoke(*words, str(path)), words)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_json_lines_give_every_text_back_unchanged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(raw_sql(1, text.encode()))
    record = json.loads(invoke("dump", "-O", "jsonl", str(path)).out)
    assert record["body"]["statement"][0].get("sql", "") == text
