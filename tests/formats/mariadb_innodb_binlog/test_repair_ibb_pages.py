"""Plans for logs with damaged pages: what is complete stays, one flipped bit is named and put right in a copy."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.repair.plan_types import RepairPolicy
from tests.cli.invoke import invoke
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs
from tests.formats.mariadb_innodb_binlog.ibb_pages import contents, damages, flipped, held

DISCARD, SALVAGE = RepairPolicy(allow_discard_valid=True), RepairPolicy(salvage=True, copy=True)
SAMPLES = ("basic", "bigstate", "dbase", "edges", "flush", "flush-exact-end", "oob", "page4k", "restart", "xa")


def found(corpus: Path, folder: Path, name: str) -> Path:
    """A file on which an earlier build was wrong, unpacked."""
    (packed,) = (corpus / "found" / "repair" / name).iterdir()
    made = folder / packed.name.removesuffix(".gz")
    made.write_bytes(gzip.decompress(packed.read_bytes()))
    return made


def sample(corpus: Path, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((corpus / logs.FORMAT / "generated" / name).iterdir())}


@pytest.mark.full_corpus
@pytest.mark.parametrize(
    ("name", "bit"),
    [
        ("ibb-plan-cuts-valid-5-7", "bit 0 of byte 0xfb1a"),
        ("ibb-plan-cuts-valid-3-7", "bit 5 of byte 0xd3d4"),
    ],
)
def test_one_flipped_bit_in_the_last_page_is_no_torn_page(corpus: Path, tmp_path: Path, name: str, bit: str) -> None:
    path, new = found(corpus, tmp_path, name), tmp_path / "new.ibb"
    before = path.read_bytes()
    planned = invoke("truncate-to-durable", str(path))
    assert planned.code == 1 and f"a flipped bit explains the damage: {bit}" in planned.text
    assert "--to-file NEW --keep-after-damage" in planned.text
    assert invoke("truncate-to-durable", "--apply", "-y", str(path)).code == 5 and path.read_bytes() == before
    assert invoke("truncate-to-durable", "--apply", "-y", str(tmp_path)).code == 5 and path.read_bytes() == before
    assert invoke("truncate-to-durable", "--keep-after-damage", "--to-file", str(new), str(path)).code == 0
    differing = [(i, a ^ b) for i, (a, b) in enumerate(zip(before, new.read_bytes(), strict=True)) if a != b]
    words = bit.split()
    assert differing == [(int(words[-1], 16), 1 << int(words[1]))]
    assert invoke("-f", logs.FORMAT, "verify", str(new)).code == 0


@pytest.mark.parametrize("page", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 5000, 16382])
def test_the_corrected_copy_is_the_file_as_it_was(corpus: Path, tmp_path: Path, page: int, at: int) -> None:
    files, name, new = sample(corpus, "dbase"), "binlog-000002.ibb", tmp_path / "new.ibb"
    hurt = {**files, name: flipped(files[name], page * 16384 + at, (page + at) % 8)}
    folder = logs.written(tmp_path / "log", hurt)
    plan = binlogtool.plan_truncate(folder / name, format=logs.FORMAT, policy=SALVAGE)
    binlogtool.write_repaired_copy(plan, new, format=logs.FORMAT)
    assert new.read_bytes() == files[name] and contents(folder) == hurt


def test_two_flipped_bits_in_a_page_are_not_guessed(corpus: Path, tmp_path: Path) -> None:
    files, name = sample(corpus, "dbase"), "binlog-000002.ibb"
    hurt = flipped(flipped(files[name], 2 * 16384 + 77, 3), 2 * 16384 + 4077, 1)
    folder = logs.written(tmp_path / "log", {**files, name: hurt})
    plan = binlogtool.plan_truncate(folder / name, format=logs.FORMAT, policy=SALVAGE)
    assert plan.refused and "cannot be salvaged" in plan.reasons[0]


@pytest.mark.full_corpus
def test_a_file_cut_inside_its_header_page_is_not_made_longer_and_called_clean(corpus: Path, tmp_path: Path) -> None:
    path = found(corpus, tmp_path, "ibb-apply-not-clean-4-7")
    before = path.read_bytes()
    for options in ((), ("--allow-discard-valid",)):
        planned = invoke("truncate-to-durable", *options, str(path))
        assert planned.code == 1 and "the header page is not whole" in planned.text
        assert invoke("truncate-to-durable", *options, "--apply", "-y", str(path)).code == 5
    assert path.read_bytes() == before


@pytest.mark.full_corpus
def test_a_page_twice_is_refused_before_anything_is_written(corpus: Path, tmp_path: Path) -> None:
    path = found(corpus, tmp_path, "ibb-apply-exc-1-7")
    before = path.read_bytes()
    plan = binlogtool.plan_truncate(path, format=logs.FORMAT)
    assert plan.refused and "1 complete record would be discarded" in plan.reasons[0]
    assert any("still has bytes to remove" in text for text in plan.reasons)
    with pytest.raises(RefusedError):
        binlogtool.apply_plan(binlogtool.plan_truncate(path, format=logs.FORMAT, policy=DISCARD), format=logs.FORMAT)
    assert path.read_bytes() == before


def test_a_plan_says_that_a_file_grows(corpus: Path, tmp_path: Path) -> None:
    files = sample(corpus, "basic")
    whole = files["binlog-000003.ibb"]
    folder = logs.written(tmp_path / "log", {**files, "binlog-000003.ibb": whole[: 2 * 16384 + 77]})
    planned = invoke("truncate-to-durable", str(folder))
    assert planned.code == 0 and "grow to 131,072 bytes" in planned.text
    value = json.loads(invoke("truncate-to-durable", "-O", "json", str(folder)).out)
    assert {one["path"][-10:]: one["grows_to"] for one in value["files"] if "grows_to" in one} == {"000003.ibb": 131072}


def all_held(corpus: Path, tmp_path: Path, names: tuple[str, ...], step: int) -> Counter[str]:
    """Every `step`-th of the damages of these logs, in the whole log and with the one file alone."""
    outcomes, number = Counter[str](), 0
    for name in names:
        files = sample(corpus, name)
        for file, data in files.items():
            for what, hurt in damages(data):
                number += 1
                if number % step:
                    continue
                for kind, given in (("log", {**files, file: hurt}), ("alone", {file: hurt})):
                    for asked in (RepairPolicy(), DISCARD):
                        folder = tmp_path / f"{number}-{kind}-{asked.allow_discard_valid}"
                        try:
                            outcomes[held(folder, given, asked)] += 1
                        except Exception as error:
                            raise AssertionError(f"{name}/{file}, {kind}, {what}: {error}") from error
                        for path in folder.iterdir():
                            path.unlink()
    return outcomes


@pytest.mark.full
def test_no_plan_drops_a_proven_record_and_every_accepted_one_ends_clean(corpus: Path, tmp_path: Path) -> None:
    outcomes = all_held(corpus, tmp_path, ("page4k", "xa"), 29)
    assert min(outcomes["refused"], outcomes["changed"]) > 5


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLES)
def test_every_page_and_every_damage(corpus: Path, tmp_path: Path, name: str) -> None:
    outcomes = all_held(corpus, tmp_path, (name,), 1)
    print(f"\n{name}: {dict(outcomes)}")
    assert min(outcomes["refused"], outcomes["changed"]) > 5
