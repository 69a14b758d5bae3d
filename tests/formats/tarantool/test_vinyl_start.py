"""Starts of vinyl directories whose outcome a server recorded: Tarantool 2.6 (found-3) and 3.9 (tarantool-3.9)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from tests.formats.tarantool import predictions
from tests.formats.tarantool.make import block, log, row

pytestmark = pytest.mark.full_corpus

WORDS = (
    "damaged_vinyl", "tarantool-vylog-refs", "snap_h_", "snap_no_eof", "snap_garbage", "snap_swap", "renamed_short",
    "dup_name", "h_vclock",
)  # fmt: skip


def built(corpus: Path, folder: Path, name: str) -> Path:
    """A variant of the metadata log in its directory."""
    refs = corpus / "found-3" / "tarantool-vylog-refs"
    shutil.copytree(refs / "base", folder, copy_function=shutil.copyfile)
    for path in (refs / "variants" / name).iterdir():
        (folder / path.name).unlink(missing_ok=True)
        shutil.copyfile(path, folder / path.name)
    return folder


def test_starts_of_damaged_vinyl_files_and_names_are_those_that_the_servers_recorded(corpus: Path) -> None:
    answers = list(predictions.answers(corpus, WORDS))
    assert len(answers) > 100
    assert [one for one in answers if one.result != "right"] == []


def test_the_reason_of_a_refused_metadata_log_is_the_servers(corpus: Path, tmp_path: Path) -> None:
    table = (corpus / "found-3" / "tarantool-vylog-refs" / "expected.tsv").read_text()
    refused = [line.split("\t") for line in table.splitlines() if "server NO" in line]
    assert len(refused) == 14
    for name, _, *rest in refused:
        (replay,) = binlogtool.replay([built(corpus, tmp_path / name, name)])
        assert replay.stop is not None
        assert " ".join(rest).strip() == f"can't initialize storage: {replay.stop.why}"


def test_verify_reports_the_record_that_the_server_refuses(corpus: Path, tmp_path: Path) -> None:
    report = binlogtool.verify([built(corpus, tmp_path / "data", "dup0-5-insert_slice")])
    (found,) = [one for one in report.findings if one.facts.get("diagnosis") == "vylog_reference"]
    assert (found.id, found.severity) == ("dangling-reference", Severity.ERROR)
    assert "Invalid VYLOG file: Duplicate slice id 7" in found.message


def test_a_run_without_a_slice_is_a_loss(corpus: Path, tmp_path: Path) -> None:
    """The server starts with 10 of 50 rows."""
    (diagnosis,) = binlogtool.diagnose([built(corpus, tmp_path / "data", "drop1-5-insert_slice")]).logs
    assert diagnosis.start == "yes"
    assert not diagnosis.well
    (loss,) = [one for _, one in diagnosis.losses if one.facts["space"] == 513 and one.facts["index"] == 0]
    assert loss.facts["diagnosis"] == "vylog_run_without_slice"


@pytest.mark.parametrize("name", ["same", "drop0-1-prepare_run", "dup0-3-create_run", "drop0-15-snapshot"])
def test_what_the_server_reads_whole_is_no_loss(corpus: Path, tmp_path: Path, name: str) -> None:
    """The server starts with all 50 rows."""
    (diagnosis,) = binlogtool.diagnose([built(corpus, tmp_path / name, name)]).logs
    assert (diagnosis.start, diagnosis.losses) == ("yes", ())


def test_an_empty_log_is_taken_away(corpus: Path) -> None:
    """The server stops at it: force_recovery leaves it out, and without the file it starts."""
    (replay,) = binlogtool.replay([corpus / "found-3" / "tarantool-empty-xlog"])
    first, second = replay.details["startup"]["remedy"]
    assert first["what"] == f"take {107:020d}.xlog away: it has 0 bytes and holds no row"
    assert first["command"].startswith("mv -- ")
    assert first["command"].endswith(f"{107:020d}.xlog.aside")
    assert "force_recovery = true" in second["what"]


def test_a_key_definition_of_another_shape_is_refused(tmp_path: Path) -> None:
    """What Tarantool 2.6 says of a definition whose names are binary."""
    record = row({0: 2}, {0x21: [0, {6: 512, 7: [{b"field": 0, b"type": b"unsigned"}], 12: 5}]})
    (tmp_path / f"{0:020d}.vylog").write_bytes(log([block(record)], kind="VYLOG"))
    report = binlogtool.verify([tmp_path])
    assert any("failed to decode index key definition" in one.message for one in report.findings)
