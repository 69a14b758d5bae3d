"""How many files a table has, and what stands in each: rows in the order of the request, files of about one size."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import binlogtool
from binlogtool.core.divide_file import FilePart, ResumePoint
from binlogtool.export.manifest import TaskFile, TaskPiece, pack_tasks
from binlogtool.export.output_options import TableFileOptions
from binlogtool.limits import KIB, MIB
from tests.cli.invoke import invoke

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("shape", "size", "cores", "files"),
    [
        (TableFileOptions("parquet"), 0, 2, 1),
        (TableFileOptions("parquet"), 10 * MIB, 64, 1),  # 3 MiB
        (TableFileOptions("parquet"), GIB, 2, 2),  # 307 MiB
        (TableFileOptions("parquet"), GIB, 64, 10),  # not smaller than 32 MiB
        (TableFileOptions("parquet"), 100 * GIB, 8, 120),
        (TableFileOptions("parquet", file_size=MIB), GIB, 1, 308),
        (TableFileOptions("csv"), GIB, 4, 32),
        (TableFileOptions("csv", compression="gzip"), GIB, 4, 4),
        (TableFileOptions("json", file_size=GIB), GIB, 4, 12),
    ],
)
def test_files_have_about_the_wanted_size_and_no_core_is_idle(
    shape: TableFileOptions, size: int, cores: int, files: int
) -> None:
    assert shape.estimate_file_count(size, cores) == files


def test_tasks_are_of_about_the_same_size_and_in_the_order_of_the_request() -> None:
    members = [TaskFile(f"{number}", f"{number}", "auto", size) for number, size in enumerate((10, 30, 0, 100, 20))]
    cuts = [
        None,
        None,
        None,
        tuple(FilePart(ResumePoint(at, 0, 0) if at else None, at + 25) for at in range(0, 100, 25)),
        None,
    ]
    tasks = pack_tasks(members, cuts, 3)
    assert [[(piece.member.name, piece.part.end) for piece in task] for task in tasks] == [
        [("0", None), ("1", None), ("2", None), ("3", 25)],  # 65 of 160 bytes
        [("3", 50), ("3", 75)],
        [("3", 100), ("4", None)],
    ]
    whole = [(TaskPiece(one),) for one in members[:2]]
    assert pack_tasks(members[:2], [None, None], 8) == whole and pack_tasks([], [], 4) == []
    assert pack_tasks(members, cuts, 1) == [tuple(piece for task in tasks for piece in task)]


@pytest.fixture
def fleet(samples: Path, tmp_path: Path) -> list[Path]:
    """Eight logs of 22 KiB."""
    paths = [tmp_path / f"{number}.log" for number in range(8)]
    for path in paths:
        shutil.copyfile(samples / "drizzle" / "basic-checksum.log", path)
    return paths


@pytest.mark.full
def test_few_large_files_with_rows_in_order_instead_of_many_small_ones(fleet: list[Path], tmp_path: Path) -> None:
    sizes = []
    for wanted, expected in ((None, 1), (14 * KIB, 4)):
        out = tmp_path / f"rows-{expected}"
        done = binlogtool.convert(fleet, "parquet", out, jobs=2, target_file_size=wanted)
        assert len(done.outputs) == expected and done.rows == 8 * 67
        places = []
        for output in done.outputs:
            rows = parquet.read_table(out / output.path, columns=["file", "offset"]).to_pylist()
            places += [(row["file"], row["offset"]) for row in rows]
        assert all(one < next_ for one, next_ in pairwise(sorted(places))) and len(places) == 8 * 67
        files = [[place for place in places if place[0] == str(path)] for path in fleet]
        assert all(one == sorted(one) for one in files)
        sizes.append(sum(output.size for output in done.outputs))
    assert sizes[0] * 1.2 < sizes[1]


@pytest.mark.parametrize(
    "words", [("--to", "jsonl"), ("--to", "parquet", "--object", "shop.*"), ("--append", "--to", "parquet")]
)
def test_where_files_have_no_such_size_the_option_is_refused(
    words: tuple[str, ...], fleet: list[Path], tmp_path: Path
) -> None:
    done = invoke("convert", *words, "--target-file-size", "1MiB", "-o", str(tmp_path / "rows"), str(fleet[0]))
    assert done.code == 2 and "--target-file-size" in done.err
