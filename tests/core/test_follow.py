"""Files that are followed come, grow, are renamed, replaced and removed; every record is told once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import binlogtool
from binlogtool.core import follow_growing_logs
from binlogtool.core.record_and_selection_types import FileFinding, FollowLoss, RecordBlock, Selection
from binlogtool.errors import UnknownFormatError, UsageError
from tests.cli.samples import insert

Parts = Iterable[RecordBlock | FileFinding | FollowLoss]


def seqs(parts: Parts) -> list[int | None]:
    """Sequence numbers of the records."""
    return [record.seq for part in parts if isinstance(part, RecordBlock) for record in part]


def lost(parts: Parts) -> list[str]:
    return [f"{Path(part.file).name}: {part.reason}" for part in parts if isinstance(part, FollowLoss)]


def found(parts: Parts) -> list[str]:
    return [part.finding.id for part in parts if isinstance(part, FileFinding)]


def rows(numbers: Iterable[int]) -> bytes:
    return b"".join(insert(n, b"shop", b"t", b"%d" % n) for n in numbers)


def open_handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def chain(samples: Path, tmp_path: Path) -> Path:
    """An empty data directory, and beside it the files of a real one."""
    shutil.copytree(samples / "tarantool/chain", tmp_path / "real")
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def arrives(data: Path, name: str) -> None:
    shutil.copyfile(data.parent / "real" / name, data / name)


def test_names_from_an_earlier_file_hold_in_later_ones(chain: Path) -> None:
    arrives(chain, "00000000000000000000.snap")
    arrives(chain, "00000000000000000000.xlog")
    with binlogtool.follow([chain], Selection(objects=("a", "b"))) as follower:
        assert len(seqs(follower.look())) == 99
        arrives(chain, "00000000000000000111.xlog")
        assert len(seqs(follower.look())) == 110
        (chain / "00000000000000000000.snap").unlink()
        (chain / "00000000000000000000.xlog").unlink()
        arrives(chain, "00000000000000000227.xlog")
        assert len(seqs(follower.look())) == 102


def test_all_that_a_growing_directory_holds_is_told_once_and_in_order(chain: Path) -> None:
    told: list[tuple[str, int]] = []
    with binlogtool.follow([chain.parent / "real"]) as whole:
        expected = [
            (Path(r.file).name, r.record) for part in whole.look() if isinstance(part, RecordBlock) for r in part
        ]
    arrives(chain, "00000000000000000000.snap")
    with binlogtool.follow([chain]) as follower:
        for name in sorted(path.name for path in (chain.parent / "real").glob("*.xlog")):
            data = (chain.parent / "real" / name).read_bytes()
            for size in (0, 30, 500, len(data) - 3, len(data)):
                (chain / name).write_bytes(data[:size])
                parts = list(follower.look())
                assert not found(parts) and not lost(parts)
                told += [(Path(r.file).name, r.record) for part in parts if isinstance(part, RecordBlock) for r in part]
    assert told == expected


def test_a_file_that_is_removed_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows([1, 2]))
    with binlogtool.follow([tmp_path]) as follower:
        assert seqs(follower.look()) == [1, 2]
        with log.open("ab") as file:
            file.write(rows([3]))
            log.unlink()
            file.write(rows([4]))
        parts = list(follower.look())
        assert (seqs(parts), lost(parts)) == ([3, 4], [])
        assert list(follower.look()) == []


def test_a_file_that_is_removed_while_an_earlier_one_is_read_is_read_too(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"transaction.log.{number}").write_bytes(rows([number]))
    with binlogtool.follow([tmp_path]) as follower:
        look = follower.look()
        first = next(look)
        for path in tmp_path.iterdir():
            path.unlink()
        parts = [first, *look]
        assert (seqs(parts), lost(parts)) == ([1, 2, 3], [])


def test_a_renamed_file_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows([1, 2]))
    with binlogtool.follow([tmp_path]) as follower:
        assert seqs(follower.look()) == [1, 2]
        log.rename(tmp_path / "transaction.log.1")
        with (tmp_path / "transaction.log.1").open("ab") as file:
            file.write(rows([3]))
        log.write_bytes(rows([4]))
        assert sorted(seqs(follower.look()), key=str) == [3, 4]
        assert seqs(follower.look()) == []


def test_after_a_rotation_by_renaming_nothing_is_told_twice(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows([1, 2]))
    with binlogtool.follow([log]) as follower:
        assert seqs(follower.look()) == [1, 2]
        with log.open("ab") as file:
            log.rename(tmp_path / "transaction.log.1")
            file.write(rows([3]))
        log.write_bytes(rows([4]))
        assert seqs(follower.look()) == [3, 4]


def test_another_file_with_the_same_inode_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows([1, 2]))
    with binlogtool.follow([log]) as follower:
        assert seqs(follower.look()) == [1, 2]
        with log.open("r+b") as file:
            file.write(rows([7, 8, 9]))
        assert seqs(follower.look()) == [7, 8, 9]


def test_a_file_that_a_server_cut_goes_on_behind_the_cut(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows([1, 2, 3]))
    with binlogtool.follow([log]) as follower:
        assert seqs(follower.look()) == [1, 2, 3]
        log_size = len(rows([1, 2]))
        os.truncate(log, log_size)
        assert lost(follower.look()) == [f"transaction.log: shortened to {log_size} bytes: 1 records are gone"]
        with log.open("ab") as file:
            file.write(rows([4]))
        assert seqs(follower.look()) == [4]


def test_a_long_file_is_read_on_from_a_place_near_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows(range(2000)))
    read: list[int] = []
    real = follow_growing_logs.Scan.segments

    def counted(scan: follow_growing_logs.Scan) -> object:
        read.append((scan.source.size or 0) - (scan.begin or 0))
        return real(scan)

    with binlogtool.follow([log]) as follower:
        assert seqs(follower.look()) == list(range(2000))
        for number in range(2000, 2010):
            with log.open("ab") as file:
                file.write(rows([number]))
            assert seqs(follower.look()) == [number]
            monkeypatch.setattr(follow_growing_logs.Scan, "segments", counted)
    assert log.stat().st_size > 3 * follow_growing_logs._REREAD_BYTES
    assert max(read) < 2 * follow_growing_logs._REREAD_BYTES


def test_days_of_files_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "transaction.log").write_bytes(rows([0]))
    with binlogtool.follow([tmp_path]) as follower:
        list(follower.look())
        before = open_handles()
        for number in range(1, 100):
            path = tmp_path / f"transaction.log.{number}"
            path.write_bytes(rows([number]))
            assert seqs(follower.look()) == [number]
            path.unlink()
        assert list(follower.look()) == []
        assert open_handles() == before
        assert (len(follower._followed), len(follower._removed), len(follower._reported)) == (1, 0, 0)
    assert open_handles() == before - 1


def test_more_files_than_can_be_held_are_read_and_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_growing_logs, "MAX_IDLE_FILES", 5)
    monkeypatch.setattr(follow_growing_logs, "MAX_HELD_FILES", 10)
    for number in range(40):
        (tmp_path / f"transaction.log.{number:02}").write_bytes(rows([number]))
    before = open_handles()
    with binlogtool.follow([tmp_path]) as follower:
        assert seqs(follower.look()) == list(range(40))
        assert open_handles() == before + 5


def test_what_is_removed_before_it_was_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_growing_logs, "MAX_IDLE_FILES", 1)
    monkeypatch.setattr(follow_growing_logs, "MAX_HELD_FILES", 1)
    for number in range(3):
        (tmp_path / f"transaction.log.{number}").write_bytes(rows([number]))
    with binlogtool.follow([tmp_path]) as follower:
        look = follower.look()
        parts = [next(look)]
        (tmp_path / "transaction.log.1").unlink()
        parts += [*look, *follower.look()]
        assert seqs(parts) == [0, 2]
        assert [why.partition(":")[0] for why in lost(parts)] == ["transaction.log.1"]


def test_a_file_that_is_about_to_get_its_name_is_not_followed(chain: Path) -> None:
    arrives(chain, "00000000000000000000.xlog")
    (chain / "00000000000000000111.xlog.inprogress").write_bytes(
        (chain.parent / "real/00000000000000000111.xlog").read_bytes()
    )
    with binlogtool.follow([chain]) as follower:
        assert {Path(p.file).name for p in follower.look()} == {"00000000000000000000.xlog"}
        (chain / "00000000000000000111.xlog.inprogress").rename(chain / "00000000000000000111.xlog")
        assert {Path(p.file).name for p in follower.look()} == {"00000000000000000111.xlog"}


def test_damage_at_the_end_is_told_when_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "transaction.log"
    broken = bytearray(rows([1, 2]))
    broken[-6] ^= 1
    log.write_bytes(broken)
    with binlogtool.follow([log]) as follower:
        parts = list(follower.look())
        assert (seqs(parts), found(parts)) == ([1], [])
        monkeypatch.setattr(follow_growing_logs, "_MAX_WRITE_S", 0.0)
        assert found(follower.look()) == ["checksum-mismatch"]
        assert found(follower.look()) == []


def test_damage_that_records_follow_is_told_at_once_and_once(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    broken = bytearray(rows([1, 2, 3]))
    broken[len(rows([1, 2])) - 6] ^= 1
    log.write_bytes(broken)
    with binlogtool.follow([log]) as follower:
        parts = list(follower.look())
        assert (seqs(parts), found(parts)) == ([1, 3], ["checksum-mismatch", "damaged-range"])
        with log.open("ab") as file:
            file.write(rows([4]))
        parts = list(follower.look())
        assert (seqs(parts), found(parts)) == ([4], [])


def test_the_first_look_must_find_a_log(tmp_path: Path) -> None:
    with binlogtool.follow([tmp_path]) as follower, pytest.raises(UnknownFormatError):
        list(follower.look())
    os.mkfifo(tmp_path / "pipe")
    with binlogtool.follow([tmp_path / "pipe"]) as follower, pytest.raises(UsageError, match="files and directories"):
        list(follower.look())


def test_a_directory_may_be_empty_for_a_while(tmp_path: Path) -> None:
    log = tmp_path / "transaction.log"
    log.write_bytes(rows([1]))
    with binlogtool.follow([tmp_path]) as follower:
        assert seqs(follower.look()) == [1]
        log.unlink()
        assert list(follower.look()) == []
        log.write_bytes(rows([2]))
        assert seqs(follower.look()) == [2]


def test_positions_count_in_one_file_also_in_files_that_come_later(tmp_path: Path) -> None:
    one = len(rows([1]))
    logs = [tmp_path / f"transaction.log.{number}" for number in range(4)]
    logs[0].write_bytes(rows([1, 2]))
    logs[1].write_bytes(rows([3, 4]))
    wanted = {
        str(one): ([2, 3, 4], [5, 6]), f"transaction.log.1:{one}": ([4], [5, 6]),
        f"transaction.log.2:{one}": ([], [6]), "seq:4": ([4], [5, 6]),
    }  # fmt: skip
    for position, (first, later) in wanted.items():
        with binlogtool.follow([tmp_path], Selection(start=position)) as follower:
            assert seqs(follower.look()) == first
            logs[2].write_bytes(rows([5, 6]))
            assert seqs(follower.look()) == later
            logs[2].unlink()


def test_behind_the_file_of_the_last_position_nothing_is_followed(tmp_path: Path) -> None:
    one = len(rows([1]))
    logs = [tmp_path / f"transaction.log.{number}" for number in range(4)]
    logs[0].write_bytes(rows([1]))
    with binlogtool.follow([tmp_path], Selection(stop=f"transaction.log.1:{2 * one}")) as follower:
        assert seqs(follower.look()) == [1]
        logs[1].write_bytes(rows([2]))
        assert seqs(follower.look()) == [2]
        logs[1].write_bytes(rows([2, 3, 4]))
        logs[2].write_bytes(rows([5]))
        assert seqs(follower.look()) == [3]
        assert seqs(follower.look()) == []
