"""Repairs of whole logs: with the redo log what real recovery leaves, without it the end of the last whole record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import crc32c
import pytest

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.findings import Severity
from binlogtool.repair.plan_types import RepairPolicy, RepairResult
from tests.cli.invoke import invoke
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mariadb_innodb_binlog.ibb_repairs import DISCARD, PLAIN, case_of, planned, reading, repaired
from tests.formats.mariadb_innodb_binlog.ibb_server import restart

CRASHES, DAMAGED = range(15), range(22)
SIZE = 16384
State = dict[str, tuple[bytes, int, int]]


def state(folder: Path) -> State:
    """Names, bytes, modes and times of the files of a log."""
    found = [(path, path.stat()) for path in folder.iterdir() if "binlogtool" not in path.name]
    return {path.name: (path.read_bytes(), status.st_mode, status.st_mtime_ns) for path, status in found}


def holds(folder: Path, redo: Path | None, done: RepairResult, before: State) -> None:
    """What must be true of every repaired log; at its end the log is as it was."""
    report = logs.verified(folder, redo=redo)
    assert {one.severity for one in report.findings} <= {Severity.NOTE}
    again = planned(folder, redo)
    assert (again.refused, again.changes) == (False, ())
    assert done.undo is not None
    binlogtool.undo(done.undo)
    os.unlink(done.undo)
    assert state(folder) == before


@pytest.mark.full
@pytest.mark.parametrize("index", CRASHES)
def test_with_the_redo_log_every_file_is_what_real_recovery_left(corpus: Path, tmp_path: Path, index: int) -> None:
    case, folder, redo = case_of(corpus, tmp_path, index)
    before, real = state(folder), case["real_recovery"]
    missing = case["dir"] == "crash/c15-file-missing"
    if missing:  # the server would take this for a new log
        assert any("missing-file" in text or "active file" in text for text in planned(folder, redo).reasons)
    done = repaired(folder, redo, DISCARD if missing else PLAIN)
    after = state(folder)
    assert {n: logs.digest(data) for n, (data, _, _) in after.items()} == {
        n: one["sha256"] for n, one in real["files_after"].items()
    }
    assert sorted(set(before) - set(after)) == sorted(real["files_removed"])
    assert {mode for _, mode, _ in after.values()} <= {mode for _, mode, _ in before.values()}
    if after and not case["dir"].endswith("no-redo-disk-ahead"):
        end = restart(folder)
        assert {"file": end.file, "offset": end.offset} == real["end_of_log"] and not end.open
        assert logs.gtids(folder) == real["groups_after"]
    if done.undo is None:
        assert after == before and not real["files_changed"] and not real["files_removed"]
    elif missing:
        binlogtool.undo(done.undo)
        assert state(folder) == before
    else:
        holds(folder, redo, done, before)


def test_every_kind_of_step_occurs_and_is_named_in_the_plan(corpus: Path, tmp_path: Path) -> None:
    actions = set()
    for index in (0, 1):
        _, folder, redo = case_of(corpus, tmp_path / str(index), index)
        plan = planned(folder, redo)
        actions |= {one.action for one in plan.files}
        for file in plan.files:
            kept = sum(one.size for one in file.pieces if one.is_original)
            assert (file.sha256_kept is None) == (file.action == "none")
            assert file.cut_bytes <= file.size - kept
    assert actions == {"zero-fill", "rewrite", "remove"}


@pytest.mark.parametrize("index", CRASHES)
def test_without_the_redo_log_the_cut_is_behind_the_last_whole_record(corpus: Path, tmp_path: Path, index: int) -> None:
    case, folder, _ = case_of(corpus, tmp_path, index)
    before, cut = state(folder), case["truncate_without_redo"]
    if cut["cut_file"] is None:
        with pytest.raises(RefusedError, match=r"missing-member: binlog-\d+\.ibb does not exist"):
            repaired(folder)
        assert state(folder) == before
        return
    if not cut["groups_kept"] and binlogtool.plan_truncate(folder).refused:
        with pytest.raises(RefusedError, match="no record would be kept"):
            repaired(folder)
        assert state(folder) == before
        return
    done = repaired(folder)
    end = restart(folder)
    if case["dir"] == "crash/c11-flush":  # its first file is full: the server goes on in the empty one that follows
        assert (end.file, end.offset, done.undo) == (cut["cut_file"] + 1, 16384, None)
    else:
        assert (end.file, end.offset) == (cut["cut_file"], cut["cut_offset"])
    assert not end.open
    assert logs.gtids(folder) == cut["groups_kept"]
    if done.undo is not None:
        holds(folder, None, done, before)


CUT = {"damaged/d10-torn-tail", "damaged/d16-garbage-after-end", "damaged/d21-incomplete-tail"}
"""What is repaired or needs no repair. d22, whose last page is whole but for its first byte, could be cut by the
manifest: servers take that page for empty, here it is one that holds records."""


@pytest.mark.full
@pytest.mark.parametrize("index", DAMAGED)
def test_damage_is_refused_or_cut_where_the_manifest_says(corpus: Path, tmp_path: Path, index: int) -> None:
    variant = logs.manifest(corpus)["damaged"][index]
    folder = logs.damaged(corpus, tmp_path / "log", variant)
    before, cut = state(folder), variant["truncate_without_redo"]
    plan = planned(folder)
    assert plan.refused == (variant["dir"] not in CUT)
    if plan.refused:
        with pytest.raises(RefusedError):
            repaired(folder)
        assert state(folder) == before
        return
    done = repaired(folder)
    if isinstance(cut, str):
        base = corpus / logs.FORMAT / "generated" / variant["base"]
        assert cut == "nothing to cut" and restart(folder) == restart(base) and logs.gtids(folder) == logs.gtids(base)
    else:
        assert restart(folder) == (cut["cut_file"], cut["cut_offset"], 0)
        assert logs.gtids(folder) == cut["groups_kept"]
    holds(folder, None, done, before)


@pytest.mark.parametrize("name", ["d01-bitflip", "d08-hole", "d12-bad-length", "d22-tail-first-byte"])
def test_valid_records_behind_damage_go_only_with_consent(corpus: Path, tmp_path: Path, name: str) -> None:
    variant = next(one for one in logs.manifest(corpus)["damaged"] if one["dir"].endswith(name))
    folder = logs.damaged(corpus, tmp_path / "log", variant)
    groups, before = logs.gtids(folder), state(folder)
    assert planned(folder).refused
    done = repaired(folder, asked=DISCARD)
    left = logs.gtids(folder)
    assert left == groups[: len(left)] and not restart(folder).open
    holds(folder, None, done, before)


@pytest.mark.full
@pytest.mark.parametrize("reserve", [True, False])
@pytest.mark.parametrize(
    ("sample", "places"),
    [
        ("basic", (1, SIZE - 1, SIZE, 2 * SIZE - 1, 2 * SIZE, 2 * SIZE + 77)),
        ("oob", (2 * SIZE - 1, 3 * SIZE)),
        ("page4k", (4096, 8191, 8192)),
    ],
)
def test_a_log_cut_anywhere_is_filled_up_to_its_size(
    corpus: Path, tmp_path: Path, sample: str, places: tuple[int, ...], reserve: bool
) -> None:
    source = corpus / logs.FORMAT / "generated" / sample
    names = sorted(path.name for path in source.iterdir() if any(path.read_bytes()))
    whole, groups = (source / names[-1]).read_bytes(), logs.gtids(source)
    for place in places:
        folder = logs.copied(source, tmp_path / str(place))
        if not reserve:
            for path in folder.iterdir():
                if path.name > names[-1]:
                    path.unlink()
        (folder / names[-1]).write_bytes(whole[:place])
        before = state(folder)
        done = repaired(folder)
        left = logs.gtids(folder)
        assert left == groups[: len(left)] and not restart(folder).open
        holds(folder, None, done, before)


# -- what is refused ---------------------------------------------------------------------------------------------------


def sealed(page: bytes) -> bytes:
    return page[:-4] + crc32c.crc32c(page[:-4]).to_bytes(4, "little")


def changed(path: Path, number: int, at: int, new: bytes) -> None:
    """Other bytes in a page, with a CRC that fits."""
    data = bytearray(path.read_bytes())
    start = number * SIZE
    data[start + at : start + at + len(new)] = new
    data[start : start + SIZE] = sealed(bytes(data[start : start + SIZE]))
    path.write_bytes(data)


def refused(folder: Path, redo: Path | None, said: str, asked: RepairPolicy = PLAIN) -> None:
    before = state(folder)
    assert said in " ".join(planned(folder, redo, asked).reasons)
    with pytest.raises(RefusedError):
        repaired(folder, redo, asked)
    assert state(folder) == before


def test_other_bytes_than_the_redo_log_proves_are_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    _, folder, redo = case_of(corpus, tmp_path, 0)
    changed(folder / "binlog-000000.ibb", 1, 100, b"\xa5\x5a")
    refused(folder, redo, "other bytes than the redo log proves", DISCARD)


def test_a_redo_log_that_a_server_would_refuse_proves_nothing(corpus: Path, tmp_path: Path) -> None:
    case, folder, redo = case_of(corpus, tmp_path, 0)
    data = bytearray(redo.read_bytes())
    data[12288 + (case["redo"]["checkpoint_lsn"] - case["redo"]["first_lsn"]) % case["redo"]["capacity"] + 3] ^= 1
    redo.write_bytes(data)
    refused(folder, redo, "the redo log proves nothing", DISCARD)


@pytest.mark.parametrize("index", (2, 10, 13))
def test_a_file_that_only_the_redo_log_has_is_made(corpus: Path, tmp_path: Path, index: int) -> None:
    """Recovery writes pages from the redo log alone, so the recorded result is that of a lost file, too."""
    case, folder, redo = case_of(corpus, tmp_path, index)
    for path in sorted(folder.glob("binlog-*.ibb"))[1:]:
        path.unlink()
    before = state(folder)
    (made,) = planned(folder, redo).changes
    assert (os.path.basename(made.path), made.action, made.size) == ("binlog-000001.ibb", "rewrite", 0)
    done = repaired(folder, redo)
    after = state(folder)
    expected = {name: one["sha256"] for name, one in case["real_recovery"]["files_after"].items()}
    assert {name: logs.digest(data) for name, (data, _, _) in after.items()} == expected
    assert {mode for _, mode, _ in after.values()} == {mode for _, mode, _ in before.values()}
    assert logs.gtids(folder) == case["real_recovery"]["groups_after"]
    holds(folder, redo, done, before)


def test_chunks_behind_a_type_byte_of_zero_are_not_cut_silently(corpus: Path, tmp_path: Path) -> None:
    _, folder, _ = case_of(corpus, tmp_path, 5)
    second = [one for one in logs.records(folder) if one.type == "COMMIT"][1]
    changed(folder / "binlog-000000.ibb", 1, second.offset - SIZE, b"\0")
    refused(folder, None, "after a type byte of 0")
    before = state(folder)
    holds(folder, None, repaired(folder, asked=DISCARD), before)


def test_sizes_that_no_server_writes_are_not_believed(corpus: Path, tmp_path: Path) -> None:
    _, folder, _ = case_of(corpus, tmp_path, 6)
    path = folder / "binlog-000000.ibb"
    data = bytearray(path.read_bytes())
    data[24:32] = (1 << 40).to_bytes(8, "little")
    data[508:512] = crc32c.crc32c(bytes(data[:508])).to_bytes(4, "little")
    path.write_bytes(sealed(bytes(data[:SIZE])) + data[SIZE:])
    refused(folder, None, "servers do not write such large files", DISCARD)


def test_one_file_alone_is_repaired_only_if_no_other_changes(corpus: Path, tmp_path: Path) -> None:
    _, folder, redo = case_of(corpus, tmp_path / "several", 0)
    refused_plan = planned(folder / "binlog-000000.ibb", redo)
    assert refused_plan.refused and "name the directory" in refused_plan.reasons[-1]
    case, folder, redo = case_of(corpus, tmp_path / "single", 11)
    new, before = tmp_path / "new.ibb", state(folder)
    binlogtool.write_repaired_copy(planned(folder / "binlog-000000.ibb", redo), new, **reading(redo))
    assert logs.digest(new.read_bytes()) == case["real_recovery"]["files_after"]["binlog-000000.ibb"]["sha256"]
    assert state(folder) == before
    holds(folder, redo, repaired(folder / "binlog-000000.ibb", redo), before)


def test_salvage_and_bounds_are_answered(corpus: Path, tmp_path: Path) -> None:
    _, folder, redo = case_of(corpus, tmp_path, 0)
    assert any("no record can move" in text for text in planned(folder, redo, RepairPolicy(salvage=True)).reasons)
    assert any("--max-loss allows" in text for text in planned(folder, redo, RepairPolicy(max_loss=1)).reasons)
    assert any("--max-loss-records" in text for text in planned(folder, redo, RepairPolicy(max_loss_records=0)).reasons)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_plans_saves_and_carries_out(corpus: Path, tmp_path: Path) -> None:
    case, folder, redo = case_of(corpus, tmp_path, 0)
    before, saved = state(folder), tmp_path / "plan.json"
    words = invoke("truncate-to-durable", "--redo", str(redo), "--plan", str(saved), str(folder))
    assert words.code == 0 and "remove 65,536 bytes" in words.text and "durable LSN 30575" in words.text
    plan = json.loads(saved.read_text())
    assert [one["action"] for one in plan["files"]] == ["zero-fill", "remove"]
    assert plan["files"][0]["proof"]["durable_lsn"] == case["redo"]["durable_lsn"]
    assert invoke("truncate-to-durable", "--apply-plan", str(saved), "--yes").code == 5  # without the redo log
    assert state(folder) == before
    done = invoke("truncate-to-durable", "--redo", str(redo), "--apply-plan", str(saved), "--yes", "-O", "json")
    assert done.code == 0
    assert set(state(folder)) == {"binlog-000000.ibb"}
    undone = invoke("undo", "--apply", json.loads(done.out)["undo"], "--yes")
    assert undone.code == 0 and state(folder) == before


def test_zeros_that_are_removed_take_no_room_in_the_undo_file(corpus: Path, tmp_path: Path) -> None:
    _, folder, redo = case_of(corpus, tmp_path, 11)
    (folder / "binlog-000001.ibb").write_bytes(bytes(8 << 20))
    before = state(folder)
    done = repaired(folder, redo)
    assert done.undo is not None and os.path.getsize(done.undo) < 1 << 18
    holds(folder, redo, done, before)
