"""The golden record tool: the same program gives the same outcomes, and a change of any output is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.api import api_text
from tests.golden.calls import FILE_CALLS, Call, all_calls
from tests.golden.runner import Outcome, Output, Scratch, prepare_process

SAMPLES = Path(__file__).resolve().parents[1] / "corpus"


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Scratch:
    for name in ("XDG_CONFIG_HOME", "COLUMNS", "LC_ALL", "TZ"):
        monkeypatch.setenv(name, "")  # restored afterwards
    prepare_process()
    return Scratch({"shipped": SAMPLES})


def test_there_are_calls_for_every_format_and_each_has_a_key_of_its_own() -> None:
    calls = all_calls({"shipped": SAMPLES})
    assert len({call.key for call in calls}) == len(calls) > 10_000
    folders = {call.words[-1].split("/")[1] for call in calls if call.words[-1].startswith("shipped/")}
    assert folders >= {"tarantool", "manticore", "eblob", "drizzle", "mysql_binlog", "mariadb-innodb-binlog"}
    assert {text.split()[0] for text in FILE_CALLS} == {
        "verify", "dump", "hexdump-annotate", "truncate-to-durable", "replay-dry-run", "stats", "diagnose", "convert",
        "flashback", "rows",
    }  # fmt: skip


def test_a_call_gives_its_status_its_texts_and_the_files_it_wrote(scratch: Scratch) -> None:
    try:
        damaged = "shipped/guides/tarantool-flipped/00000000000000000003.xlog"
        verified = scratch.run(Call(("verify", damaged)))
        converted = scratch.run(Call(("convert", "--to", "jsonl", "-o", "out/rows", "--on-damage", "skip", damaged)))
    finally:
        scratch.remove()
    assert verified.status == 1
    assert b"checksum-mismatch" in verified.out
    assert list(converted.files) == ["rows"]


@pytest.mark.parametrize("member", ["status", "out", "err", "files"])
def test_any_difference_changes_the_outcome(member: str) -> None:
    before = {"status": 0, "out": b"a", "err": b"b", "files": {"x": b"c"}}
    changes = {"status": 1, "out": b"A", "err": b"B", "files": {"x": b"C"}}
    assert Output(**before).outcome() == Output(**before).outcome()
    assert Output(**{**before, member: changes[member]}).outcome() != Output(**before).outcome()


def test_an_empty_text_has_no_hash() -> None:
    assert Output(0, b"", b"", {}).outcome() == Outcome(0, "", "", "")


def test_the_public_api_is_described_by_name_signature_and_first_line() -> None:
    import binlogtool

    lines = api_text().splitlines()
    assert [line for line in lines if line.startswith("verify(")] != []
    assert {line.partition("(")[0].partition(":")[0] for line in lines if line[0] != " "} == set(binlogtool.__all__)
