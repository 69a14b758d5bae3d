"""What must hold for every replay: no exception, sums that add up, one digest however the log is read or repaired."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import binlogtool
from bench import make
from bench.cases import TOOL
from bench.measure import run_child
from binlogtool.errors import BinlogtoolError, LimitError, UnknownFormatError, UsageError
from binlogtool.limits import Limits
from binlogtool.prediction.predict_replay import ReplayResult
from tests.harness import mutate
from tests.harness.oracle_mysql import mysql_binlog
from tests.harness.samples import FORMATS, Sample, pieces
from tests.sampling import EXHAUSTIVE, take_sample

FOLDERS = ("tarantool", "drizzle", "manticore", "sphinx", "eblob", "mysql-binlog", "mariadb-innodb-binlog")
MUTATED = {"tarantool": 500, "drizzle": 450, "mysql-binlog": 350, "mariadb-innodb-binlog": 400, "manticore": 60,
           "eblob": 700}  # fmt: skip
"""Inputs that take about 2 s: ten times as many in an exhaustive run, else a third."""
MOST = {"mariadb-innodb-binlog": 32768}
"""Bytes of a piece that is mutated: else 4096; a page log has two pages at least."""


def held(found: ReplayResult) -> None:
    """Every record has one decision and one reason; no object has more records than there are."""
    total = sum(found.decisions.values())
    assert sum(found.reasons.values()) == total and set(found.rules) == set(found.reasons)
    assert sum(sum(one.counts.values()) for one in found.objects) <= total
    assert (found.digest is None) == bool(found.unknown)  # where rows are not known, the state has no digest
    if found.digest is not None:
        assert re.fullmatch("[0-9a-f]{64}", found.digest)


def logs(corpus: Path, folder: str) -> Iterator[Path]:
    """Directories that hold one log, and single files of directories with many."""
    for path in sorted((corpus / folder).rglob("*")):
        if (
            path.is_file()
            and path.suffix not in (".json", ".jsonl", ".md", ".gz", ".txt")
            and "oracle" not in str(path)
        ):
            yield path


def replayed(path: Path, backend: str = "python", **how: object) -> list[ReplayResult] | None:
    try:
        return binlogtool.replay([path], backend=backend, **how)  # type: ignore[arg-type]
    except BinlogtoolError:  # not a log, a key is missing: said in one line
        return None


EVERY = {"mysql-binlog": 5, "tarantool": 5} | dict.fromkeys(("drizzle", "manticore", "sphinx", "eblob"), 3)
EVERY["mariadb-innodb-binlog"] = 3
"""One file of so many is replayed."""


@pytest.mark.full
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_replayed_and_every_record_is_decided(corpus: Path, folder: str) -> None:
    seen = differing = 0
    for path in take_sample(logs(corpus, folder), EVERY[folder]):
        lines: Counter[tuple[str, str]] = Counter()

        def count(one: object, lines: Counter[tuple[str, str]] = lines) -> None:
            lines[one.verb, one.reason] += 1  # type: ignore[attr-defined]

        found = replayed(path, on_decision=count)
        if found is None:
            continue
        assert len(found) == 1, path
        held(found[0])
        passed = sum(found[0].decisions.values()) - sum(lines.values())
        assert (
            passed >= 0
            and sum(n for (verb, _), n in lines.items() if verb == "applied") == found[0].decisions["applied"]
        )
        (report,) = binlogtool.verify([path], backend="python").files
        differing += sum(found[0].decisions.values()) != (report.records or 0) and path.suffix != ".ibb"
        seen += 1
    assert seen > 10 and differing <= ALLOWED.get(folder, 0)


ALLOWED = {"mysql-binlog": 5}
"""Logs with compressed transactions of which verification counts the outer events alone."""


@pytest.mark.full
@pytest.mark.parametrize("folder", FOLDERS)
def test_both_readers_and_two_runs_leave_one_state(corpus: Path, folder: str) -> None:
    for path in take_sample(logs(corpus, folder), 7):
        plain, again, fast = (replayed(path, backend) for backend in ("python", "python", "native"))
        assert plain == again == fast, path


@pytest.mark.full
@pytest.mark.parametrize(
    "set_", [f"{name}/generated/damaged" for name in ("tarantool", "drizzle", "mysql-binlog", "eblob", "sphinx")]
)
def test_a_repair_changes_no_state(corpus: Path, tmp_path: Path, set_: str) -> None:
    repaired = 0
    for number, path in enumerate(take_sample(logs(corpus, set_), 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        copy = folder / path.name
        shutil.copyfile(path, copy)
        before = replayed(copy)
        try:
            plan = binlogtool.plan_truncate(copy)
            if before is None or plan.refused or not any(file.cut_bytes for file in plan.files):
                continue
            binlogtool.apply_plan(plan)
        except BinlogtoolError:
            continue
        after = replayed(copy)
        assert after is not None and after[0].digest == before[0].digest, path
        assert after[0].decisions["applied"] == before[0].decisions["applied"], path
        repaired += 1
    assert repaired >= (3 if EXHAUSTIVE else 1)


# -- one log, split ----------------------------------------------------------------------------------------------------


def digest(*paths: Path) -> str | None:
    (found,) = binlogtool.replay(paths, backend="python")
    assert found.decisions["rejected"] == 0 and found.stop is None
    return found.digest


def test_a_binary_log_that_is_split_in_two_leaves_the_same_state(samples: Path, tmp_path: Path) -> None:
    """At a border of transactions, with the same format description at the head of both files."""
    data = (samples / "mysql_binlog/sets/mariadb/rot-bin.000003").read_bytes()
    frames = mysql_binlog(data).frames
    kinds = [data[frame.start + 4] for frame in frames]
    head = data[: frames[0].end]
    ends = [frame.end for frame, kind in zip(frames, kinds, strict=True) if kind == 16]  # XID
    whole = tmp_path / "whole" / "log.000003"
    whole.parent.mkdir()
    whole.write_bytes(data[: ends[-1]])
    for place in ends[:-1:3]:
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "log.000003").write_bytes(data[:place])
        (folder / "log.000004").write_bytes(head + data[place : ends[-1]])
        (folder / "log.index").write_text("log.000003\nlog.000004\n")
        assert digest(folder) == digest(whole)
    assert kinds[0] == 15 and len(ends) > 3


def test_a_tarantool_log_that_is_split_in_two_leaves_the_same_state(samples: Path, tmp_path: Path) -> None:
    """At the borders that the server itself chose: the rows of its chain in one file, behind one header."""
    chain = sorted((samples / "tarantool/chain").glob("*.xlog"))
    folder = tmp_path / "one"
    folder.mkdir()
    shutil.copyfile(samples / "tarantool/chain/00000000000000000000.snap", folder / "00000000000000000000.snap")
    bodies = [path.read_bytes().partition(b"\n\n") for path in chain]
    rows = b"".join(body.removesuffix(b"\xd5\x10\xad\xed") for _, _, body in bodies)
    (folder / chain[0].name).write_bytes(bodies[0][0] + b"\n\n" + rows + b"\xd5\x10\xad\xed")
    assert digest(folder) == digest(samples / "tarantool/chain")


@pytest.mark.parametrize("name", ["drizzle/basic-checksum.log", "drizzle/mixed-checksum.log", "eblob/api-sync.binlog"])
def test_a_log_that_is_split_between_any_two_records_leaves_the_same_state(
    samples: Path, tmp_path: Path, name: str
) -> None:
    """Drizzle's transactions may lie in both files; the records of eblob need the head of the file in front of them."""
    path = samples / name
    data = path.read_bytes()
    with binlogtool.open(path) as opened:
        borders = [record.offset for record in opened.records()]
    head, whole = data[: borders[0]], digest(path)
    for place in borders[1::7]:
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / f"1{path.suffix}").write_bytes(data[:place])
        (folder / f"2{path.suffix}").write_bytes(head + data[place:])
        assert digest(folder) == whole, place
    assert len(borders) > 20
    (folder / f"2{path.suffix}").unlink()
    assert digest(folder) != whole


# -- damaged input -----------------------------------------------------------------------------------------------------


SAMPLES = Path(__file__).resolve().parents[1] / "corpus"
SHIPPED = {
    "manticore": (
        "manticore/v16-mixed/binlog.0000",
        "manticore/v14-mixed/binlog.001",
        "manticore/sphinx-mixed/binlog.001",
    ),
    "eblob": ("eblob/api-sync.binlog", "eblob/dialect-p-packed.binlog", "eblob/dialect-b-rawtypes-api.binlog"),
}


def mutated(rng: random.Random, inputs: list[Sample]) -> tuple[Sample, bytes]:
    """Damage that keeps checksums right half of the time, where the harness knows how; else any."""
    if inputs[0].format in FORMATS:
        return mutate.mutated(rng, inputs)
    sample = rng.choice(inputs)
    data = bytearray(sample.data)
    mutate.damage(rng, data, inputs)
    return sample, bytes(data)


@pytest.mark.full
@pytest.mark.parametrize("format", [*FORMATS, *SHIPPED])
def test_no_mutated_input_ends_a_replay_with_an_exception(corpus: Path, tmp_path: Path, format: str) -> None:
    """Goal R1 for replays."""
    most = MOST.get(format, 4096)
    inputs = (
        [sample for sample in pieces(corpus, format, most) if len(sample.data) <= most] if format in FORMATS else []
    )
    inputs = inputs or [Sample(format, name, (SAMPLES / name).read_bytes()) for name in SHIPPED[format]]
    count = MUTATED[format] * 10 if EXHAUSTIVE else MUTATED[format] // 3
    for number in range(count):
        sample, data = mutated(random.Random(70_000_000 + number), inputs)
        path = tmp_path / Path(sample.name).name
        path.write_bytes(data)
        try:
            for found in binlogtool.replay([path], format=format, backend="python"):
                held(found)
        except (UnknownFormatError, UsageError, LimitError):
            pass
        path.unlink()
    print(f"\nR1 replay {format}: {count:,} mutated inputs, 0 exceptions")


# -- memory ------------------------------------------------------------------------------------------------------------


def test_temporary_files_are_gone_also_after_an_error(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BaseException):
        """As Ctrl-C."""

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    seen: list[int] = []

    def interrupt(_: object) -> None:
        seen.append(len(list(temporary.rglob("*"))))
        if seen[-1] > 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        binlogtool.replay(
            [samples / "tarantool/chain"], limits=Limits(max_memory=64 << 10), on_decision=interrupt, backend="python"
        )
    assert max(seen) > 1 and not list(temporary.iterdir())
    binlogtool.replay([samples / "tarantool/chain"], limits=Limits(max_memory=64 << 10), backend="python")
    assert not list(temporary.iterdir())


def test_a_state_that_goes_to_disk_is_the_same(samples: Path) -> None:
    (small,), (large,) = (
        binlogtool.replay([samples / "tarantool/chain"], limits=Limits(max_memory=size), backend="python")
        for size in (64 << 10, 1 << 30)
    )
    assert small.details["keys_spilled"] > 0 and "keys_spilled" not in large.details
    assert small.digest == large.digest
    assert [(one.keys, one.digest) for one in small.objects] == [(one.keys, one.digest) for one in large.objects]


KEYS = 1_000_000


@pytest.mark.full
def test_more_keys_than_memory_need_no_more_memory(tmp_path: Path) -> None:
    """A log of distinct keys: half a gigabyte of entries under a bound of 64 MiB."""
    path, out = tmp_path / make.xlog_name(), tmp_path / "out"
    index = [512, 0, "primary", "tree", {"unique": True, "number": make.NUMBER}, [[0, "unsigned"]]]
    defined = make.small_block(2, {0x10: 288, 0x21: index}).records(np.array([make.FIRST_LSN]))
    row = make.small_block(3, {0x10: 512, 0x21: [make.NUMBER, "user123"]})
    size = KEYS * len(row.data)
    make.written(path, make.xlog_head() + defined.tobytes(), [row], make.FIRST_LSN + 1, size, make.MARK)
    base = run_child([*TOOL, "replay-dry-run", "--no-digest", str(path)])
    digests = []
    for memory in ("64MiB", "1GiB"):
        child = run_child(
            [*TOOL, "replay-dry-run", "-O", "json", "--max-memory", memory, "--output", f"{out}-{memory}", str(path)]
        )
        assert child.code == 0, child
        value = json.loads(Path(f"{out}-{memory}").read_text())
        (space,) = (one for one in value["objects"] if one["name"] != "_index")
        assert space["keys"] == space["applied"] > 0.99 * KEYS
        assert ("keys_spilled" in value["details"]) == (memory == "64MiB")
        digests.append(value["digest"])
        if memory == "64MiB":
            print(f"\n{KEYS:,} keys: peak {child.peak >> 20} MiB, without the state {base.peak >> 20} MiB")
            assert child.peak < base.peak + (64 << 20)
    assert digests[0] == digests[1]
