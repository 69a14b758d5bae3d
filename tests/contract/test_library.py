"""The public library: what the command line does is a call, and results are rendered in the same forms."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import binlogtool
from tests.cli.invoke import ROOT, invoke

GUIDES = ROOT / "tests/corpus/guides"
FLIPPED = GUIDES / "tarantool-flipped"
TORN = GUIDES / "tarantool-torn/00000000000000000003.xlog"
CALLS = {name for name in binlogtool.__all__ if name[0].islower()} - {"annotate", "collect_stats"}
"""These two give at once what the command line takes piece by piece, to tell of damage as it comes."""


def test_every_name_is_there_and_in_the_reference() -> None:
    reference = (ROOT / "docs/api.md").read_text("utf-8")
    listed = re.findall(r"^\.\. auto(?:function|class):: binlogtool\.(\w+)$", reference, re.MULTILINE)
    assert sorted([*listed, "BinlogtoolError", "__version__"]) == sorted(binlogtool.__all__)
    for name in listed:
        assert getattr(binlogtool, name).__doc__, name
        assert name in dir(binlogtool)
    with pytest.raises(AttributeError, match="nothing_of_it"):
        binlogtool.nothing_of_it  # noqa: B018


def test_values_are_loaded_only_when_they_are_asked_for() -> None:
    loaded = "print('construct' in sys.modules)"
    program = f"import binlogtool, sys; {loaded}; binlogtool.Log; {loaded}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\nTrue\n"


def test_json_lines_are_those_of_dump(tmp_path: Path) -> None:
    done = binlogtool.convert(TORN, "jsonl", tmp_path / "out.jsonl", selection=binlogtool.Selection(on_damage="skip"))
    lines = (tmp_path / "out.jsonl").read_bytes()
    assert lines == invoke("dump", "-O", "jsonl", str(TORN)).out
    assert done.complete and done.rows == lines.count(b"\n") > 10
    assert json.loads(binlogtool.manifest_as_json(done))["rows"] == done.rows


def test_a_report_is_told_as_the_command_line_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # no seconds in JUnit
    report = binlogtool.verify(FLIPPED)
    told = {
        "json": binlogtool.render_report(report, "json"),
        "junit": binlogtool.render_report(report, "junit"),
        "sarif": binlogtool.render_report(report, "sarif"),
        "gitlab": binlogtool.render_report(report, "gitlab"),
        "markdown": binlogtool.render_report(report, "markdown"),
        "html": binlogtool.render_report(report, "html"),
    }
    kinds = [word for kind in told for word in ("--report", f"{kind}={tmp_path / kind}")]
    assert invoke("verify", *kinds, str(FLIPPED)).code == 1
    assert {kind: (tmp_path / kind).read_bytes() for kind in told} == told
    assert [one["offset"] for file in json.loads(told["json"])["files"] for one in file["findings"]] == [
        0x50C,
        0x50C,
        0x54B,
    ]
    cases = ElementTree.fromstring(told["junit"]).iter("failure")
    assert {one.get("type") for one in cases} == {"checksum-mismatch", "damaged-range"}
    assert {one["ruleId"] for one in json.loads(told["sarif"])["runs"][0]["results"]} == {
        "checksum-mismatch", "damaged-range", "valid-after-damage",
    }  # fmt: skip
    assert not list(ElementTree.fromstring(binlogtool.render_report(report, "junit", fail_on=None)).iter("failure"))
    with pytest.raises(binlogtool.BinlogtoolError, match="unknown report kind 'pdf'; use one of"):
        binlogtool.render_report(report, "pdf")


def test_a_plan_is_saved_read_and_carried_out(tmp_path: Path) -> None:
    log = Path(shutil.copy(TORN, tmp_path))
    before, plan = log.read_bytes(), binlogtool.plan_truncate(log)
    saved = tmp_path / "plan.json"
    saved.write_bytes(binlogtool.plan_as_json(plan))
    assert saved.read_bytes() == invoke("truncate-to-durable", "-O", "json", str(log)).out
    applied = binlogtool.apply_plan(binlogtool.load_plan(saved), undo_dir=str(tmp_path))
    assert log.read_bytes() == before[:2915]  # what the guide's server kept
    assert applied.undo is not None
    binlogtool.undo(applied.undo)
    assert log.read_bytes() == before


def test_figures_replays_and_diagnoses_are_those_of_the_command_line() -> None:
    counted = binlogtool.collect_stats(FLIPPED, by="type")
    there = json.loads(invoke("stats", "--by", "type", "-O", "json", str(FLIPPED)).out)
    assert {name: tally.records for name, tally in counted.groups.items()} == {
        one["name"]: one["records"] for one in there["groups"]
    }
    (replayed,) = binlogtool.replay(FLIPPED)
    assert binlogtool.replay_as_json(replayed) == invoke("replay-dry-run", "-O", "json", str(FLIPPED)).out
    found = binlogtool.diagnose(FLIPPED)
    space = rb'"free_bytes": \d+'  # other processes write to the disk
    library, command = binlogtool.render_diagnosis(found, "json"), invoke("diagnose", "-O", "json", str(FLIPPED)).out
    assert re.sub(space, b"", library) == re.sub(space, b"", command)
    assert binlogtool.render_diagnosis(found, "markdown") == invoke("diagnose", "-O", "markdown", str(FLIPPED)).out
    with pytest.raises(binlogtool.BinlogtoolError, match="bucket must be one of auto, 1m"):
        binlogtool.collect_stats(FLIPPED, bucket="1y")


def test_the_command_line_uses_every_call() -> None:
    used = "".join(path.read_text("utf-8") for path in (ROOT / "binlogtool/cli").glob("*.py"))
    assert {name for name in CALLS if f"binlogtool.{name}(" not in used} == set()
