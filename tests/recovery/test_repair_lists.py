"""`--fix-meta`: the list of files of a log is brought in line, or made anew, exactly as the server wrote it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.findings import Severity
from binlogtool.repair.plan_types import RepairPolicy
from tests.recovery.copies import own_copy

FIX = RepairPolicy(fix_meta=True)
SETS = ("v16/common-rotation-24k", "v16/common-three-starts", "v16/pertable-rotation-16k-digits6",
        "v15/common-rotation-24k", "v15/pertable-rotation-16k-digits6", "v14/rotation-24k")  # fmt: skip
SPOILT: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "magic": lambda data: b"XXXX" + data[4:],
    "torn": lambda data: data[:6],
    "empty": lambda data: b"",
    "count": lambda data: data[:9] + bytes([data[9] + 1]) + data[10:],
}


def fixed(folder: Path) -> str:
    """Repairs a directory with --fix-meta; returns the undo file."""
    done = binlogtool.apply_plan(binlogtool.plan_truncate(folder, policy=FIX))
    assert done.undo is not None
    assert binlogtool.verify([folder]).count_findings(Severity.ERROR) == 0
    again = binlogtool.plan_truncate(folder, policy=FIX)
    assert (again.refused, again.changes) == (False, ())
    return done.undo


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if "binlogtool" not in path.name}


@pytest.mark.full
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("spoil", SPOILT)
def test_a_list_that_cannot_be_read_is_made_anew_as_the_server_wrote_it(
    corpus: Path, tmp_path: Path, name: str, spoil: str
) -> None:
    source = corpus / "manticore/generated" / name
    folder = own_copy(source, tmp_path / "log")
    true = (source / "binlog.meta").read_bytes()
    meta = folder / "binlog.meta"
    spoilt = SPOILT[spoil](true)
    meta.unlink()
    if spoilt is not None:
        meta.write_bytes(spoilt)
        meta.chmod(0o604)
    for path in folder.glob("binlog.0*"):
        path.chmod(0o640)
    before = everything(folder)
    assert not binlogtool.plan_truncate(folder).changes  # not without being asked
    undo = fixed(folder)
    now = meta.read_bytes()
    if "pertable" in name:  # the order of the files of different tables is known to the server alone
        assert (now[:10], sorted(now[10:])) == (true[:10], sorted(true[10:]))
    else:
        assert now == true
    assert everything(folder) == {**before, "binlog.meta": now}
    assert meta.stat().st_mode & 0o777 == (0o640 if spoilt is None else 0o604)  # as the logs; as it was
    binlogtool.undo(undo)
    assert everything(folder) == before


@pytest.mark.parametrize(("server", "lost"), [("mysql-9.7", 0), ("mysql-9.7", -1), ("mariadb-10.11", 0)])
def test_files_that_are_gone_leave_the_index(corpus: Path, tmp_path: Path, server: str, lost: int) -> None:
    folder = own_copy(corpus / "mysql-binlog/generated" / server / "rotated-set", tmp_path / "log")
    (index,) = folder.glob("*.index")
    lines = index.read_bytes().splitlines(keepends=True)
    there = [line for line in lines if (folder / Path(line.decode().strip()).name).exists()]
    gone = folder / Path(there[lost].decode().strip()).name
    for path in folder.glob(f"{gone.name}*"):
        path.unlink()
    before = everything(folder)
    assert not binlogtool.plan_truncate(folder).changes  # not without being asked
    undo = fixed(folder)
    kept = [line for line in there if line != there[lost]]
    assert everything(folder) == {**before, index.name: b"".join(kept)}
    binlogtool.undo(undo)
    assert everything(folder) == before


@pytest.mark.parametrize("server", ["mysql-9.7", "mariadb-10.11"])
def test_a_file_that_is_missing_between_others_stays_in_the_index(corpus: Path, tmp_path: Path, server: str) -> None:
    """Without its line the server would skip its transactions without a word."""
    folder = own_copy(corpus / "mysql-binlog/generated" / server / "rotated-set", tmp_path / "log")
    (index,) = folder.glob("*.index")
    names = [Path(line.strip()).name for line in index.read_text().splitlines()]
    there = [name for name in names if (folder / name).exists()]
    (folder / there[len(there) // 2]).unlink()
    before = everything(folder)
    plan = binlogtool.plan_truncate(folder, policy=FIX)
    assert plan.refused and index.name not in {Path(file.path).name for file in plan.changes}
    with pytest.raises(RefusedError):
        binlogtool.apply_plan(plan)
    assert everything(folder) == before


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("manticore/generated/v16/damaged/meta-no-files", "not listed in binlog.meta"),
        ("sphinx/generated/damaged/meta-no-files", "not listed in binlog.meta"),
        ("sphinx/generated/damaged/meta-version-newer", "binlog.meta says 6"),
        ("tarantool/generated/damaged/duplicated_block/00000000000000000227.xlog", "LSN 250 of replica 1 is repeated"),
    ],
)
def test_a_plan_that_would_leave_an_error_says_so(corpus: Path, case: str, why: str) -> None:
    """`verify` has an error, and no repair mends it: that is not "nothing to do"."""
    plan = binlogtool.plan_truncate(corpus / case, policy=FIX)
    assert plan.refused and not plan.changes
    assert any(why in reason and "this command cannot repair it" in reason for reason in plan.reasons)


def test_what_only_fix_meta_mends_is_said_without_it(corpus: Path) -> None:
    plan = binlogtool.plan_truncate(corpus / "sphinx/generated/damaged/meta-missing")
    assert plan.refused and "--fix-meta may fix it" in plan.reasons[0]


def test_the_state_of_mariadb_knows_what_was_in_a_last_log_that_is_gone(corpus: Path, tmp_path: Path) -> None:
    """The index could be brought in line, but not the loss undone: refused, also with leave to discard records."""
    source = corpus / "mysql-binlog/generated/mariadb-10.11/rotated-set"
    folder = own_copy(source, tmp_path / "log")
    (index,) = folder.glob("*.index")
    last = Path(index.read_text().splitlines()[-1]).name
    (folder / last).unlink()
    before = everything(folder)
    for asked in (FIX, RepairPolicy(fix_meta=True, allow_discard_valid=True)):
        plan = binlogtool.plan_truncate(folder, policy=asked)
        assert plan.refused
        assert any("missing-member" in reason and "1-2-48 to 1-2-53" in reason for reason in plan.reasons)
    assert everything(folder) == before
