"""Damage of vinyl directories: what the program foretells, and what the real server then does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import binlogtool
from tests.formats.tarantool import vinyl_damages, vinyl_server
from tests.formats.tarantool.server import program
from tests.sampling import take_sample

pytestmark = pytest.mark.server

SEEDS, NIGHTLY_SEEDS = take_sample(range(30), 6), range(1000, 1400)
DELAYED = ("vylog_run_removed",)
"""Losses of a later start: the server removes files that are in use."""
Blocks = list[list[vinyl_damages.Record]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, vinyl_server.Start]:
    """A directory and its rows."""
    if program() is None and os.environ.get("BINLOGTOOL_SERVER") != "1":
        pytest.skip("no tarantool is installed; BINLOGTOOL_SERVER=1 demands one")
    folder = vinyl_server.make(tmp_path_factory.mktemp("vinyl") / "data", 7)
    return folder, vinyl_server.start(folder, force_recovery=False)


class Comparison(NamedTuple):
    """A prediction beside a start. wrong: how they differ, "" = not at all. is_open: nothing was predicted."""

    wrong: str
    is_open: bool = False


def compare(folder: Path, intact: vinyl_server.Start, *, force: bool) -> Comparison:
    """Start the server, and hold the prediction against what it does."""
    theirs = vinyl_server.start(folder, force_recovery=force)
    (ours,) = binlogtool.replay([folder], policy="force" if force else "server")
    is_open = ours.starts is None and bool(ours.details["startup"]["not_checked"])
    if not is_open and ours.starts is not theirs.started:
        return Comparison(f"starts: {ours.starts} ({ours.stop}), server: {theirs.started} ({theirs.error})")
    if not theirs.started:
        if is_open:
            return Comparison("", is_open)
        assert ours.stop is not None
        same = ours.stop.why in theirs.error or ("EOF marker" in ours.stop.why and "EOF marker" in theirs.error)
        return Comparison("" if same else f"{ours.stop.why!r}, server: {theirs.error!r}")
    lost = {index for index, rows in intact.indexes.items() if theirs.indexes.get(index) != rows}
    losses = [f for _, f in ours.findings if f.id == "silent-loss" and f.facts.get("diagnosis") not in DELAYED]
    said = bool(losses) or (force and bool(ours.details.get("server_says") or ours.decisions["rejected"]))
    agree = bool(lost) == said or (is_open and said)
    return Comparison("" if agree else f"lost: {sorted(lost)}, losses: {[f.message for f in losses]}", is_open)


def check(directory: tuple[Path, vinyl_server.Start], folder: Path, seeds: Sequence[int]) -> tuple[list[str], int]:
    """Compare each seed with and without force_recovery: what was wrong, and how many starts were open."""
    base, intact = directory
    wrong, is_open = [], 0
    for seed in seeds:
        shutil.copytree(base, folder)
        kind, changes = vinyl_damages.damage(folder, seed)
        vinyl_damages.apply(folder, changes)
        for force in (False, True):
            found = compare(folder, intact, force=force)
            is_open += found.is_open
            if found.wrong:
                wrong.append(f"seed {seed} {kind} force={force}: {found.wrong}")
        shutil.rmtree(folder)
    return wrong, is_open


def test_an_undamaged_directory_starts_and_loses_nothing(directory: tuple[Path, vinyl_server.Start]) -> None:
    base, intact = directory
    assert intact.started
    assert len(intact.indexes["a/0"]) == len(intact.indexes["a/1"]) == 278
    assert compare(base, intact, force=False) == Comparison("")


def test_starts_and_losses_of_damaged_directories_are_foretold(
    directory: tuple[Path, vinyl_server.Start], tmp_path: Path
) -> None:
    wrong, is_open = check(directory, tmp_path / "data", SEEDS)
    assert wrong == []
    assert is_open <= 4


def variant(directory: tuple[Path, vinyl_server.Start], folder: Path, change: Callable[[Blocks], None]) -> Comparison:
    """Compare a copy whose newest metadata log is changed."""
    base, intact = directory
    shutil.copytree(base, folder)
    path = vinyl_damages.newest(folder, "vylog")
    head, blocks = vinyl_damages.read_vylog(path.read_bytes())
    change(blocks)
    path.write_bytes(vinyl_damages.write_vylog(head, blocks))
    return compare(folder, intact, force=False)


def living_slices(blocks: Blocks) -> list[vinyl_damages.Record]:
    """The INSERT_SLICE records whose slices are not deleted."""
    records = [one for rows in blocks for one in rows]
    deleted = {one.keys[8] for one in records if one.type == 9}
    return [one for one in records if one.type == 8 and one.keys[8] not in deleted]


def test_a_slice_that_is_registered_after_the_checkpoint_is_no_loss(
    directory: tuple[Path, vinyl_server.Start], tmp_path: Path
) -> None:
    def move(blocks: Blocks) -> None:
        slice_ = next(one for one in living_slices(blocks) if one in blocks[0])
        blocks[0].remove(slice_)
        blocks.append([slice_])

    assert variant(directory, tmp_path / "data", move) == Comparison("")


def test_a_run_has_the_rows_that_its_file_has_whatever_lsn_is_recorded_of_it(
    directory: tuple[Path, vinyl_server.Start], tmp_path: Path
) -> None:
    def lower(blocks: Blocks) -> None:
        used = {one.keys[2] for one in living_slices(blocks)}
        for rows in blocks[1:]:
            for n, one in enumerate(rows):
                if one.type == 5 and one.keys[2] in used:
                    rows[n] = one._replace(keys={**one.keys, 9: one.keys[9] - 1})

    assert variant(directory, tmp_path / "data", lower) == Comparison("")


@pytest.mark.nightly
def test_of_hundreds_of_damages_at_most_one_in_a_hundred_is_foretold_wrong(
    directory: tuple[Path, vinyl_server.Start], tmp_path: Path
) -> None:
    wrong, is_open = check(directory, tmp_path / "data", NIGHTLY_SEEDS)
    assert len(wrong) <= len(NIGHTLY_SEEDS) * 2 // 100, wrong
    assert is_open <= len(NIGHTLY_SEEDS) * 2 // 50
