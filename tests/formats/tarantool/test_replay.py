"""The dry run against what real servers did: recorded starts of every set and every damaged case of the corpus."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.findings import Finding
from binlogtool.formats.tarantool.replay.loss_findings import REASONS
from binlogtool.formats.tarantool.replay.replayer import parse_vclock_position
from binlogtool.prediction.predict_replay import ReplayResult
from tests.formats.tarantool.damages import build, cases, load
from tests.formats.tarantool.make import block, dml, header

POLICIES = {"server": "start", "force": "start_force"}
IN_RUNS = {"vy", "vy2", "vshared"}
"""Vinyl spaces: most of their rows are in runs, not in the log."""

PAGES_ARE_READ_LATER = ("run_flip_page", "run_truncated")
"""The start went well; what failed was a scan of the space (corpus README)."""

WORDS_OF_ITS_OWN = {"snap_eof_marker_missing": "snapshot `on' has no EOF marker"}
"""2.6.0 prints a name that it has already freed."""


def replayed(folder: Path, policy: str = "server", **more: Any) -> ReplayResult:
    (result,) = binlogtool.replay([folder], policy=policy, **more)
    assert set(result.rules) == set(result.reasons)
    return result


def keys(result: ReplayResult) -> dict[str, int]:
    return {one.name: one.keys or 0 for one in result.objects}


def losses(result: ReplayResult) -> list[Finding]:
    return [found for _, found in result.findings if found.id == "silent-loss"]


def compare(result: ReplayResult, server: dict[str, Any], case: str = "") -> None:
    """Started or not, why not, rows of each space, and the vclock."""
    assert result.starts == server["started"], result.stop
    if not server["started"]:
        said = server["stderr"].strip().rpartition("F> ")[2].removeprefix("can't initialize storage: ")
        assert result.stop is not None
        assert said in (result.stop.why, WORDS_OF_ITS_OWN.get(case))
        return
    counts = {name: rows for name, rows in dict(server["counts"]).items() if name not in IN_RUNS}
    assert {name: keys(result).get(name, 0) for name in counts} == counts
    assert result.position["vclock"] == server["vclock"]


def in_memory(folder: Path, files: Iterable[Path]) -> Path:
    folder.mkdir()
    for path in files:
        shutil.copyfile(path, folder / path.name)
    return folder


# -- recorded starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["single", "rotated", "chain", "killed", "killed_restarted", "repl/a", "repl/b"])
def test_an_undamaged_set_starts_as_it_did(corpus: Path, tmp_path: Path, name: str) -> None:
    root = corpus / "tarantool" / "generated"
    folder = shutil.copytree(root / name, tmp_path / "data", copy_function=shutil.copyfile)
    for path in (root / "killed").iterdir() if name == "killed_restarted" else ():
        if path.is_file() and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    recorded = json.loads((root / "manifest.json").read_text())["sets"][name]["recovered"]
    result = replayed(folder)
    compare(result, recorded)
    assert not losses(result)


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_appended_behind_torn_bytes_stop_the_start(corpus: Path, policy: str) -> None:
    root = corpus / "tarantool" / "generated"
    recorded = json.loads((root / "manifest.json").read_text())["sets"]["appended_after_torn"]
    result = replayed(root / "appended_after_torn", policy)
    compare(
        result, recorded["recovered_with_force"] if policy == "force" else {"started": False, **recorded["recovered"]}
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("damaged", "damaged_vinyl") for name in cases(kind)]
)
def test_a_damaged_case_starts_as_it_did(corpus: Path, tmp_path: Path, kind: str, name: str, policy: str) -> None:
    case = load(corpus, kind)[name]
    result = replayed(build(corpus, kind, case, tmp_path / "data"), policy)
    if name in PAGES_ARE_READ_LATER:
        assert result.starts
        return
    compare(result, case["tarantool_2_6"][POLICIES[policy]], name)


SILENT = (
    "fixheader_length_past_eof", "truncated_middle_file", "truncated_middle_file_on_block_boundary", "removed_block",
    "swapped_blocks", "tx_commit_row_removed",
)  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_rows_that_the_server_loses_without_a_word_are_named(corpus: Path, tmp_path: Path, name: str) -> None:
    case = load(corpus, "damaged")[name]
    expected = case["expected"]
    lost = expected.get("rows_lost_by_server") or expected.get("rows_lost") or [[1, 250]]  # of the swapped blocks
    result = replayed(build(corpus, "damaged", case, tmp_path / "data"))
    named = {(r, lsn) for f in losses(result) for r, low, high in f.facts["lost"] for lsn in range(low, high + 1)}
    assert named == {(replica, lsn) for replica, lsn in lost}
    assert not result.is_clean


@pytest.mark.full
def test_no_other_start_of_a_damaged_case_loses_rows_in_silence(corpus: Path, tmp_path: Path) -> None:
    for name, case in load(corpus, "damaged").items():
        result = replayed(build(corpus, "damaged", case, tmp_path / name), digest=False)
        assert bool(losses(result)) == (name in (*SILENT, "good_crc_zstd_frame_cut")), name


# -- a snapshot is the state of the log before it ----------------------------------------------------------------------

RENAMED = {"funcidx": "renamed"}
"""An object keeps the name of its space under which its first row was applied."""

SNAPSHOTS = [("single", 0, 1188), ("single", 1188, 1753), ("rotated", 0, 1188), ("rotated", 1188, 1753),
             ("repl/a", 0, 380), ("repl/b", 16, 159)]  # fmt: skip


@pytest.mark.parametrize(("name", "first", "second"), SNAPSHOTS)
def test_a_snapshot_and_the_logs_behind_it_give_the_next_snapshot(
    corpus: Path, tmp_path: Path, name: str, first: int, second: int
) -> None:
    folder = corpus / "tarantool" / "generated" / name
    logs = [path for path in folder.glob("*.xlog") if first <= int(path.stem) < second]
    ours = replayed(in_memory(tmp_path / "logs", [folder / f"{first:020d}.snap", *logs]))
    theirs = replayed(in_memory(tmp_path / "snapshot", [folder / f"{second:020d}.snap"]))
    assert ours.position == theirs.position
    left, right = states(ours), states(theirs)
    assert len(right) > 10
    for old, new in RENAMED.items():
        if old in left:
            assert left.pop(old)[0] == right.pop(new)[0]
    # rows of vinyl are not in snapshots; what a sequence has given out is not in the log
    assert {n: s for n, s in left.items() if n not in IN_RUNS} == {
        n: s for n, s in right.items() if n != "_sequence_data" or n in left
    }


def states(result: ReplayResult) -> dict[str, tuple[int | None, str | None]]:
    return {one.name: (one.keys, one.digest) for one in result.objects if one.keys}


def test_rows_of_vinyl_in_the_logs_are_as_many_as_the_checkpoint_wrote(corpus: Path, tmp_path: Path) -> None:
    generated = corpus / "tarantool" / "generated"
    manifest = json.loads((generated / "manifest.json").read_text())["sets"]
    for name, first, second in (("repl/a", 0, 380), ("repl/b", 16, 159)):
        logs = [path for path in (generated / name).glob("*.xlog") if first <= int(path.stem) < second]
        base = [path for path in (generated / name).glob(f"{first:020d}.*") if path.suffix in (".snap", ".vylog")]
        folder = in_memory(tmp_path / name[-1], [*base, *logs])
        (run,) = (f for f in manifest[name]["files"] if f["file"].endswith(".run"))
        assert keys(replayed(folder))["vshared"] == run["rows_by_type"]["REPLACE"]


# -- digests -----------------------------------------------------------------------------------------------------------


def test_a_log_split_in_two_files_leaves_the_same_state(corpus: Path, tmp_path: Path) -> None:
    chain = corpus / "tarantool" / "generated" / "chain"
    folder = shutil.copytree(chain, tmp_path / "data", copy_function=shutil.copyfile)
    folder.chmod(0o755)
    log = folder / f"{227:020d}.xlog"
    data = log.read_bytes()
    with binlogtool.open(log) as opened:
        rows = [r for r in opened.records() if r.offset < 3794]
    clock = {0: 22, 1: 205} | {r: max(x.seq or 0 for x in rows if x.origin == r) for r in (0, 1)}
    head = data[: data.index(b"\n\n") + 2]
    own = head.replace(b"PrevVClock: {0: 10, 1: 101}", b"PrevVClock: {0: 22, 1: 205}")
    own = own.replace(b"VClock: {0: 22, 1: 205}\nPrev", b"VClock: {0: %d, 1: %d}\nPrev" % (clock[0], clock[1]))
    log.write_bytes(data[:3794] + data[-4:])
    (folder / f"{sum(clock.values()):020d}.xlog").write_bytes(own + data[3794:])
    after = folder / f"{334:020d}.xlog"
    text = b"PrevVClock: {0: %d, 1: %d}" % (clock[0], clock[1])
    after.write_bytes(after.read_bytes().replace(b"PrevVClock: {0: 22, 1: 205}", text))
    one, two = replayed(chain), replayed(folder)
    assert (one.starts, two.starts) == (True, True)
    assert len(two.read) == len(one.read) + 1
    assert (one.digest, one.position) == (two.digest, two.position)


def test_a_repaired_log_leaves_the_state_of_the_damaged_one(corpus: Path, tmp_path: Path) -> None:
    case = load(corpus, "damaged")["torn_tail_mid_block"]
    folder = build(corpus, "damaged", case, tmp_path / "data")
    before = replayed(folder)
    log = folder / case["expected"]["file"]
    log.write_bytes(log.read_bytes()[: case["expected"]["durable_end"]] + bytes.fromhex("d510aded"))
    after = replayed(folder)
    assert (before.digest, before.position) == (after.digest, after.position)
    assert before.digest != replayed(corpus / "tarantool" / "generated" / "chain").digest


# -- single files, positions -------------------------------------------------------------------------------------------


def test_a_single_log_is_read_from_its_own_vclock(tmp_path: Path) -> None:
    path = tmp_path / f"{10:020d}.xlog"
    rows = b"".join(dml(lsn) for lsn in (10, 11, 12))
    path.write_bytes(header(vclock="{1: 10}") + block(rows) + bytes.fromhex("d510aded"))
    result = replayed(path)
    assert result.starts is None
    assert result.reasons == {"already-applied": 1, "new": 2}
    assert result.position == {"vclock": {"1": 12}}


def test_a_position_ends_what_is_skipped(corpus: Path) -> None:
    chain = corpus / "tarantool" / "generated" / "chain"
    result = replayed(chain, against={"vclock": {"0": 22, "1": 210}})
    assert [Path(path).stem for path in result.read] == [f"{n:020d}" for n in (227, 334, 436)]
    assert result.reasons["already-applied"] == 5 + 513  # rows of the log, and the snapshot
    assert result.position["vclock"] == {"0": 43, "1": 393}
    assert replayed(chain, against=str(chain / f"{227:020d}.xlog")).position == result.position


def test_a_directory_without_a_snapshot_is_a_new_instance(corpus: Path, tmp_path: Path) -> None:
    chain = corpus / "tarantool" / "generated" / "chain"
    result = replayed(in_memory(tmp_path / "data", chain.glob("*.xlog")))
    assert (result.starts, result.position, result.decisions["applied"]) == (True, {"vclock": {}}, 0)
    assert sum(f.facts["records"] for f in losses(result)) == result.reasons["no-snapshot"] > 400


def test_a_position_of_another_shape_names_nothing() -> None:
    assert parse_vclock_position({"vclock": {"1": 5, "x": 3, "2": "7", "3": -1, "0": True}}) == {1: 5}
    assert parse_vclock_position({"gtid": "0-1-5"}) == {}
    assert parse_vclock_position({"vclock": [1, 2]}) == {}


def test_every_reason_names_its_source() -> None:
    assert all(
        re.search(r"`[a-z]\w*(\.cc?)?`|docs/spec/tarantool\.md#[a-z]|tested with \d", text) for text in REASONS.values()
    )
