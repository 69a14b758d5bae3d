"""Repairs of real damaged logs against recorded truth: what real servers made of them, and the manifests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError, UnknownFormatError
from binlogtool.findings import Severity
from binlogtool.repair.plan_types import RepairPolicy
from tests.formats.drizzle.test_damage import BYTES_VALID, INTACT, MISLABELLED
from tests.harness.oracle import MARK
from tests.recovery.copies import own_copy
from tests.sampling import EXHAUSTIVE, take_sample

TIME = 1_234_567_890_123_456_789


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["crash-disk-full", "crash-kill9"])
def test_mysql_logs_become_what_the_server_made_of_them(corpus: Path, tmp_path: Path, name: str) -> None:
    """Byte for byte but for the in-use flag, which the server clears behind its own recovery: without it MySQL 9.7
    rolls back what an engine holds prepared, 1 of 278 rows in a test with kill -9."""
    server = corpus / "mysql-binlog/generated/mysql-9.7"
    folder = own_copy(server / f"{name}-before", tmp_path / "log")
    log, truth = folder / "crash-bin.000001", server / f"{name}-after" / "crash-bin.000001"
    before = sha(log)
    done = binlogtool.apply_plan(binlogtool.plan_truncate(folder, policy=RepairPolicy(fix_meta=True)))
    ours, servers = bytearray(log.read_bytes()), truth.read_bytes()
    assert (ours[21], servers[21]) == (1, 0)
    ours[21] = 0
    assert ours == servers
    assert (done.undo is None) == (len(servers) == (server / f"{name}-before" / log.name).stat().st_size)
    if done.undo is not None:
        binlogtool.undo(done.undo)
    assert sha(log) == before


def test_mysql_logs_are_cut_to_the_size_that_the_server_chose(corpus: Path, tmp_path: Path) -> None:
    path = own_copy(corpus / "mysql-binlog/generated/mysql-9.7/crash-disk-full-before/crash-bin.000001", tmp_path / "x")
    binlogtool.apply_plan(binlogtool.plan_truncate(path))
    assert path.stat().st_size == 309_120
    assert path.read_bytes()[21] == 1  # the server's own flag stays without --fix-meta


def manticore(corpus: Path) -> dict[str, dict[str, object]]:
    value = json.loads((corpus / "manticore/generated/v16/manifest.json").read_text())["repaired"]
    assert isinstance(value, dict)
    return value


def test_manticore_logs_become_the_files_that_the_server_replayed(corpus: Path, tmp_path: Path) -> None:
    cut = salvaged = 0
    for name, case in manticore(corpus).items():
        source = corpus / "manticore/generated/v16/damaged" / name
        folder = own_copy(source, tmp_path / name)
        log = folder / "binlog.0000"
        hole = case["classification"] == "hole"
        plan = binlogtool.plan_truncate(folder)
        assert plan.refused == hole, name
        if hole:
            plan = binlogtool.plan_truncate(folder, policy=RepairPolicy(allow_discard_valid=True))
            copy = binlogtool.plan_truncate(log, policy=RepairPolicy(salvage=True, copy=True))
            binlogtool.write_repaired_copy(copy, tmp_path / f"{name}.new")
            assert sha(tmp_path / f"{name}.new") == case["salvage"]["sha256"], name  # type: ignore[index]
            assert "unexpected tid" in copy.notes[0]
            salvaged += 1
        done = binlogtool.apply_plan(plan)
        assert sha(log) == case["truncate"]["sha256"], name  # type: ignore[index]
        assert (folder / "binlog.meta").read_bytes() == (source / "binlog.meta").read_bytes()
        assert done.undo is not None
        binlogtool.undo(done.undo)
        assert sha(log) == sha(source / "binlog.0000"), name
        cut += 1
    print(f"\nManticore: {cut} cuts and {salvaged} salvaged logs have the recorded SHA-256")
    assert (cut, salvaged) == (12, 7)


def test_a_listed_file_that_is_missing_leaves_the_list_of_manticore(corpus: Path, tmp_path: Path) -> None:
    folder = own_copy(corpus / "manticore/generated/v16/damaged/log-missing", tmp_path / "x")
    assert binlogtool.plan_truncate(folder).refused
    meta = (folder / "binlog.meta").read_bytes()
    plan = binlogtool.plan_truncate(folder, policy=RepairPolicy(fix_meta=True))
    assert "binlog.0000" in plan.files[0].proof["why"] and "its transactions are lost" in plan.files[0].proof["why"]
    done = binlogtool.apply_plan(plan)
    assert (folder / "binlog.meta").read_bytes() != meta
    assert binlogtool.verify([folder]).count_findings(Severity.ERROR) == 0
    assert done.undo is not None
    binlogtool.undo(done.undo)
    assert (folder / "binlog.meta").read_bytes() == meta


def test_drizzle_logs_are_cut_where_the_manifest_says(corpus: Path, tmp_path: Path) -> None:
    manifest = json.loads((corpus / "drizzle/generated/manifest.json").read_text())["damaged"]
    cut = 0
    for name, case in manifest.items():
        end = case["expected"]["truncate_to"]
        path = own_copy(corpus / "drizzle/generated" / name, tmp_path / Path(name).stem)
        data = path.read_bytes()
        plan = binlogtool.plan_truncate(path)
        if end is None:
            sound = Path(name).stem in INTACT | MISLABELLED | BYTES_VALID
            assert (plan.refused, bool(plan.changes)) == (not sound, not sound), name
            continue
        binlogtool.apply_plan(plan)
        assert path.read_bytes() == data[:end], name
        cut += 1
    print(f"\nDrizzle: {cut} logs cut where the manifest says, {len(manifest) - cut} left alone")
    assert cut == 9


def tarantool(corpus: Path) -> list[tuple[str, Path, int]]:
    """Damaged cases with one durable end: name, file, end."""
    manifest = json.loads((corpus / "tarantool/generated/damaged/manifest.json").read_text())
    found = []
    for case in manifest["cases"]:
        name, end = case["expected"].get("file"), case["expected"].get("durable_end")
        path = corpus / "tarantool/generated/damaged" / case["case"] / str(name)
        if isinstance(end, int) and path.suffix == ".xlog" and path.exists():
            found.append((case["case"], path, end))
    return found


def test_tarantool_logs_are_cut_where_the_manifest_says(corpus: Path, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for name, source, end in tarantool(corpus):
        path = own_copy(source, tmp_path / name)
        data = path.read_bytes()
        plan = binlogtool.plan_truncate(path, policy=RepairPolicy(allow_discard_valid=True, write_close_marker=True))
        if plan.refused or not plan.changes:
            outcomes["refused" if plan.refused else "nothing to do"] += 1
            continue
        binlogtool.apply_plan(plan)
        assert path.read_bytes() == data[:end] + MARK, name
        outcomes["cut and closed"] += 1
    print(f"\nTarantool: {dict(outcomes)}")
    assert outcomes["cut and closed"] >= 15


FORMATS = ("drizzle", "eblob", "manticore", "sphinx", "tarantool", "mysql-binlog")
CHOICES = (RepairPolicy(), RepairPolicy(allow_discard_valid=True), RepairPolicy(fix_meta=True, write_close_marker=True))


def small_files(root: Path, limit: int) -> list[Path]:
    skip = (".gz", ".json", ".jsonl", ".md", ".txt", ".tsv", ".py", ".lua", ".sql")
    return [
        p
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.suffix not in skip and "oracle" not in str(p) and 0 < p.stat().st_size <= limit
    ]


@pytest.mark.full
@pytest.mark.parametrize("format", FORMATS)
def test_w5_w6_repaired_logs_are_clean_and_undone_ones_the_same(corpus: Path, quick_folder: Path, format: str) -> None:
    """Every small file of the corpus, with three sets of allowances."""
    outcomes: Counter[str] = Counter()
    for number, source in enumerate(take_sample(small_files(corpus / format, 64 * 1024), 3)):
        path = own_copy(source, quick_folder / str(number))
        path.chmod(0o604)
        os.utime(path, ns=(TIME, TIME + 1))
        data = path.read_bytes()
        for asked in CHOICES:
            outcomes[_repaired_and_undone(path, data, asked)] += 1
        shutil.rmtree(path.parent)
    print(f"\nW5 W6 {format}: {dict(outcomes)}")
    assert outcomes["repaired"] >= (8 if EXHAUSTIVE else 3)


def _repaired_and_undone(path: Path, data: bytes, asked: RepairPolicy) -> str:
    try:
        plan = binlogtool.plan_truncate(path, policy=asked)
    except (UnknownFormatError, RefusedError):
        return "not a log"
    if plan.refused or not plan.changes:
        if plan.refused:
            with pytest.raises(RefusedError):
                binlogtool.apply_plan(plan)
        assert path.read_bytes() == data
        return "refused" if plan.refused else "nothing to do"
    (file,) = plan.files
    (before,) = binlogtool.verify([path]).files
    done = binlogtool.apply_plan(plan)
    now = path.read_bytes()
    if file.action == "truncate":
        assert now == data[: file.durable_end]
    (report,) = binlogtool.verify([path]).files
    if not asked.allow_discard_valid:  # only records of a transaction that never ended may be among what was cut
        assert report.transactions == before.transactions, path
        if "mysql-binlog" in report.format:
            assert report.records is not None and before.records is not None and report.records <= before.records, path
        else:
            assert report.records == before.records, path
    assert max((f.severity for f in report.findings), default=Severity.NOTE) < Severity.ERROR, path
    assert report.records == file.proof.get("records_kept", file.proof["records"])
    again = binlogtool.plan_truncate(path, policy=asked)
    assert (again.refused, again.changes) == (False, ()), path
    assert done.undo is not None
    binlogtool.undo(done.undo)
    os.unlink(done.undo)
    status = path.stat()
    assert path.read_bytes() == data
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o604, TIME + 1)
    return "repaired"
