"""The samples that ship with the project: runs everywhere, without the full corpus."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.report.diagnosis_and_replay import compare_replay_states, render_replay_text, replay_to_json
from tests.archives import extract
from tests.formats.tarantool import oracle
from tests.formats.tarantool.readings import as_expected, as_printed, ours

DAMAGED = "00000000000000000227.xlog"


@pytest.fixture
def chain(samples: Path) -> Path:
    return samples / "tarantool" / "chain"


def test_the_chain_is_clean_and_whole(chain: Path) -> None:
    report = binlogtool.verify([chain])
    assert report.status == "clean"
    assert [(one.records, one.transactions, one.closed) for one in report.files] == [
        (513, 513, True), (111, 66, True), (116, 62, True), (107, 62, True), (102, 57, True), (0, 0, True),
    ]  # fmt: skip
    assert report.files[-2].details["vclock"] == {"0": 43, "1": 393}


@pytest.mark.parametrize("backend", ["python", "native"])
def test_rows_are_what_the_servers_tool_prints(samples: Path, backend: str) -> None:
    folder = samples / "tarantool" / "oracle"
    for printed in sorted(folder.iterdir()):
        path = samples / "tarantool" / "chain" / printed.name.removesuffix(".json.gz")
        assert [as_printed(r) for r in ours(path, backend)] == list(map(as_expected, oracle.rows(printed)))


def test_a_run_and_its_index_agree_and_are_what_the_tool_prints(samples: Path) -> None:
    folder = samples / "tarantool" / "vinyl"
    assert binlogtool.verify([folder]).status == "clean"
    for kind in ("run", "index"):
        name = f"00000000000000000017.{kind}"
        expected = list(map(as_expected, oracle.rows(folder / f"{name}.json.gz")))
        assert [as_printed(r) for r in ours(folder / "524" / "0" / name)] == expected


def test_a_run_without_its_index_is_a_missing_member(samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "tarantool" / "vinyl", tmp_path / "v")
    (tmp_path / "v/524/0/00000000000000000017.index").unlink()
    (found,) = [f for one in binlogtool.verify([tmp_path / "v"]).sets for f in one.findings]
    assert found.id == "missing-member"


def test_an_index_that_describes_another_run_is_a_mismatch(samples: Path, tmp_path: Path) -> None:
    shutil.copytree(samples / "tarantool" / "vinyl", tmp_path / "v")
    run = tmp_path / "v/524/0/00000000000000000017.run"
    data = run.read_bytes()
    second = data.index(b"\xd5\xba\x0b\xab", data.index(b"\xd5\xba\x0b\xab") + 1)
    run.write_bytes(data[: data.index(b"\xd5\xba\x0b\xab")] + data[second:])
    report = binlogtool.verify([tmp_path / "v"])
    assert {f.facts["diagnosis"] for one in report.files for f in one.findings} == {"run_index_mismatch"}


@pytest.mark.parametrize(
    ("case", "diagnosis", "offset", "durable_end"),
    [
        ("flip_plain_block", "crc_mismatch", 4649, 4649),
        ("fixheader_length_past_eof", "block_past_end_of_file", 4508, 4508),
        ("garbage_with_false_magics", "bad_magic", 2338, 2338),
        ("truncated_middle_file_on_block_boundary", "lsn_gap", 3794, 3794),
        ("tx_commit_row_removed", "tx_not_finished", 3886, 3886),
        ("good_crc_zstd_frame_cut", "bad_zstd", 3618, 3618),
        ("eof_marker_in_the_middle", "data_after_eof", 3794, 3794),
    ],
)
def test_damage_is_an_error_at_its_place(
    samples: Path, tmp_path: Path, case: str, diagnosis: str, offset: int, durable_end: int
) -> None:
    shutil.copytree(samples / "tarantool" / "chain", tmp_path / "data")
    shutil.copyfile(samples / "tarantool" / "damaged" / case / DAMAGED, tmp_path / "data" / DAMAGED)
    (about,) = [one for one in binlogtool.verify([tmp_path / "data"]).files if one.path.endswith(DAMAGED)]
    hits = [f for f in about.findings if f.facts.get("diagnosis") == diagnosis]
    assert [(f.severity.label, f.offset) for f in hits] == [("error", offset)]
    assert about.durable_end == durable_end


def test_torn_bytes_in_a_middle_file_are_a_note_when_the_next_vclock_explains_them(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain, tmp_path / "data")
    middle = tmp_path / "data" / DAMAGED
    middle.write_bytes(middle.read_bytes()[:-4] + b"\xd5\xba\x0b\xab\x28\x00")
    findings = [f for one in binlogtool.verify([tmp_path / "data"]).files for f in one.findings]
    assert [(f.id, f.severity.label) for f in findings] == [("torn-tail", "note")]


def test_a_file_of_another_instance_is_a_mismatch(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain, tmp_path / "data")
    middle = tmp_path / "data" / DAMAGED
    middle.write_bytes(middle.read_bytes().replace(b"Instance: 5", b"Instance: 6"))
    findings = [f for one in binlogtool.verify([tmp_path / "data"]).files for f in one.findings]
    assert [(f.id, f.offset) for f in findings] == [("meta-mismatch", 38)]


def test_logs_that_no_snapshot_needs_are_remarked(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain, tmp_path / "data")
    snap = tmp_path / "data" / "00000000000000000000.snap"
    later = snap.read_bytes().replace(b"VClock: {}", b"VClock: {0: 22, 1: 205}", 1)
    (tmp_path / "data" / "00000000000000000227.snap").write_bytes(later)
    snap.unlink()
    found = [
        (Path(one.path).name, f.severity, f.facts["files"], f.message)
        for one in binlogtool.verify([tmp_path / "data"]).files
        for f in one.findings
        if f.id == "extra-member"
    ]
    text = (
        "this and 1 more logs, to 00000000000000000111.xlog, are older than the oldest snapshot and not collected yet: "
    )
    assert found == [("00000000000000000000.xlog", Severity.NOTE, 2, text + "the server does not read them")]


@pytest.mark.full_corpus
def test_what_is_left_of_a_dropped_run_is_a_note(corpus: Path, tmp_path: Path) -> None:
    """The server was killed while it removed the run; it starts with all rows."""
    with tarfile.open(corpus / "found/servers/tarantool-dropped-run/directory.tar.gz") as archive:
        extract(archive, tmp_path)
    report = binlogtool.verify([tmp_path])
    assert {f.severity for f in report.findings} == {Severity.NOTE}
    assert [(f.id, f.facts["diagnosis"]) for f in report.sets[0].findings] == [("missing-member", "dropped_run")]
    (tmp_path / "513/0/00000000000000000008.index").unlink()
    report = binlogtool.verify([tmp_path])
    assert [f.severity for f in report.sets[0].findings] == [Severity.NOTE, Severity.ERROR]


@pytest.mark.full_corpus
def test_rows_in_runs_of_vinyl_are_unknown_and_never_a_number(corpus: Path, tmp_path: Path) -> None:
    with tarfile.open(corpus / "found/servers/tarantool-dropped-run/directory.tar.gz") as archive:
        extract(archive, tmp_path)
    (replayed,) = binlogtool.replay([tmp_path])
    (space,) = [one for one in replayed.objects if one.name == "v"]
    assert (space.keys, space.digest, replayed.digest) == (None, None, None)
    assert list(replayed.unknown) == ["v"]
    value = replay_to_json(replayed)
    assert {one["name"]: one["keys"] for one in value["objects"] if one["name"] in "vm"} == {"m": 20_392, "v": None}
    assert any(line.startswith("  v: ") and "rows at the end unknown" in line for line in render_replay_text(replayed))
    assert [one["name"] for one in compare_replay_states([replayed], [replayed])] == ["v"]
