"""The fuzz targets in a run of seconds; `python -m tests.fuzz FORMAT --count N` is the same without an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.check import ENGINES
from tests.fuzz.run import Order, run, scratch_folder
from tests.fuzz.seeds import TARGETS, seeds


def holds(
    corpus: Path, target: str, save: Path, count: int, repair: int, engines: tuple[str, ...], first: int = 0
) -> None:
    with scratch_folder() as scratch:
        done = run(Order(target, count, first, repair, 1, save, scratch, engines), seeds(corpus, target))
    told = "\n".join(Path(folder, "failure.txt").read_text() for folder in done.saved)
    assert not done.failures, f"{dict(done.failures)}\n{told}"
    assert (done.inputs, sum(done.repairs.values()) - done.repairs["-"]) == (count, repair)
    assert done.refused < count
    print(f"\nfuzz {target}: {count:,} inputs, {dict(done.repairs)}, {done.seconds:.1f} s CPU")


@pytest.mark.parametrize("target", TARGETS)
def test_some_inputs_of_every_target_break_no_promise(corpus: Path, tmp_path: Path, target: str) -> None:
    holds(corpus, target, tmp_path, 8, 4, ENGINES[:1])


@pytest.mark.parametrize("first", [61, 97, 792])
def test_a_redo_log_that_leaves_less_than_the_files_hold_breaks_no_promise(
    corpus: Path, tmp_path: Path, first: int
) -> None:
    """Inputs that did: an offset behind the end of a cut file, and a recovery that removes the only file."""
    holds(corpus, "mariadb-redo", tmp_path, 1, 1 if first == 61 else 0, ENGINES[:1], first)


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
def test_more_inputs_of_every_target_break_no_promise(corpus: Path, tmp_path: Path, target: str) -> None:
    holds(corpus, target, tmp_path, 400, 80, ENGINES[:1])


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
def test_more_inputs_through_every_backend_break_no_promise(corpus: Path, tmp_path: Path, target: str) -> None:
    holds(corpus, target, tmp_path, 400, 80, ENGINES)
