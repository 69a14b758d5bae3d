"""Starts of vinyl directories whose outcome a server recorded: Tarantool 2.6 (found-3) and 3.9 (tarantool-3.9)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from tests.formats.tarantool import predictions
from tests.formats.tarantool.make import block, log, row
from tests.formats.tarantool.vinyl_damages import Record, newest, read_vylog, write_vylog

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


@pytest.mark.full
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
    assert not diagnosis.is_healthy
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
    assert first["what"] == f"move {107:020d}.xlog away: it has 0 bytes and contains no row"
    assert first["command"].startswith("mv -- ")
    assert first["command"].endswith(f"{107:020d}.xlog.aside")
    assert "force_recovery = true" in second["what"]


def test_a_key_definition_of_another_shape_is_refused(tmp_path: Path) -> None:
    """What Tarantool 2.6 says of a definition whose names are binary."""
    record = row({0: 2}, {0x21: [0, {6: 512, 7: [{b"field": 0, b"type": b"unsigned"}], 12: 5}]})
    (tmp_path / f"{0:020d}.vylog").write_bytes(log([block(record)], kind="VYLOG"))
    report = binlogtool.verify([tmp_path])
    assert any("failed to decode index key definition" in one.message for one in report.findings)


def test_what_a_server_does_with_a_forgotten_run_in_use_is_open(corpus: Path, tmp_path: Path) -> None:
    """`vy_recovery_forget_run` frees a run that slices refer to. With DELETE_SLICE before it Tarantool 2.6 starts."""
    folder = shutil.copytree(corpus / "found-3" / "tarantool-vylog-refs" / "base", tmp_path / "data")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    path = newest(folder, "vylog")
    head, blocks = read_vylog(path.read_bytes())
    records = [one for rows in blocks for one in rows]
    deleted = {one.keys[8] for one in records if one.type == 9}
    slice_ = next(one for one in records if one.type == 8 and one.keys[8] not in deleted)
    forget = Record(slice_.header, 7, {2: slice_.keys[2]})
    path.write_bytes(write_vylog(head, [*blocks, [forget]]))
    (diagnosis,) = binlogtool.diagnose([folder]).logs
    assert (diagnosis.start, diagnosis.is_healthy) == ("open", False)
    assert [one.facts["diagnosis"] for _, one in diagnosis.losses][:1] == ["vylog_run_forgotten"]
    assert "the server reads freed memory" in diagnosis.replays[0].details["startup"]["not_checked"][0]
    path.write_bytes(write_vylog(head, [*blocks, [Record(slice_.header, 9, {8: slice_.keys[8]}), forget]]))
    (diagnosis,) = binlogtool.diagnose([folder]).logs
    assert diagnosis.start == "yes"


@pytest.mark.parametrize("policy", ["server", "force"])
def test_a_new_instance_refuses_the_metadata_log_of_the_old_one(corpus: Path, tmp_path: Path, policy: str) -> None:
    """Without a snapshot, Tarantool 2.6 starts only if one of the metadata logs has the number 0."""
    folder = Path(shutil.copytree(corpus / "found-3/tarantool-vylog-refs/base", tmp_path / "data"))
    folder.chmod(0o755)
    for snapshot in folder.glob("*.snap"):
        snapshot.unlink()
    for lost, refused in (
        (None, None),
        ("00000000000000000000.vylog", "00000000000000000047.vylog"),
        ("00000000000000000047.vylog", "00000000000000000087.vylog"),
        ("00000000000000000087.vylog", None),
    ):
        if lost is not None:
            (folder / lost).unlink()
        (replay,) = binlogtool.replay([folder], policy=policy)
        reason = None if refused is None else f"./{refused}: invalid instance UUID"
        assert (replay.starts, replay.stop and replay.stop.why) == (refused is None, reason), lost
