"""Which scanner reads a file: by what is in all files of its log, and by what packed payloads unpack to."""

from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.formats.base import Format
from binlogtool.limits import Limits
from binlogtool.log.open import Log, LogFile, open_file, reader, volume
from binlogtool.schema import backends

SAMPLES = Path(__file__).parents[1] / "corpus"

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(backends.ENVIRONMENT, raising=False)


def opened(name: str) -> LogFile:
    path = str(SAMPLES / name)
    return open_file(path, name, None, Limits())


PACKED = "tarantool/chain/00000000000000000111.xlog"
PLAIN = "drizzle/basic-checksum.log"


@pytest.mark.parametrize(("name", "work", "others", "chosen"), [
    (PLAIN, "checksum", 128 * MIB, "numba"),
    (PLAIN, "checksum", 127 * MIB, "python"),
    (PACKED, "rows", MIB - 1, "python"),
    (PACKED, "rows", MIB, "numba"),
    (PACKED, "checksum", 127 * MIB, "python"),
    (PACKED, "checksum", 128 * MIB, "numba"),
])  # fmt: skip
def test_the_bytes_of_the_whole_log_decide_and_rows_that_may_be_packed_count_more(
    name: str, work: str, others: int, chosen: str
) -> None:
    file = opened(name)
    try:
        assert reader("auto", file, work, others).name == chosen
        assert reader("python", file, work, others).name == "python"
    finally:
        file.source.close()


def test_many_small_files_get_the_reader_of_one_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (SAMPLES / PACKED).read_bytes()
    paths = [tmp_path / f"{number}.xlog" for number in range(4)]
    for path in paths:
        path.write_bytes(data)
    monkeypatch.setattr(backends, "WORTH_IT", {"checksum": 1 << 40, "rows": 24 * len(data), "json": 1 << 40})
    assert chosen(paths[:2]) == {"python"}
    assert chosen(paths) == {"numba"}


def chosen(paths: list[Path]) -> set[str]:
    plan: list[tuple[str, str, Format | None]] = [(str(path), path.name, None) for path in paths]
    with Log(plan, Limits(), "auto") as log:
        return {log.scan(file).backend.name for file in log.files}


def test_what_is_no_local_file_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert volume([str(tmp_path / "a"), str(tmp_path), str(tmp_path / "none"), "s3://bucket/a", "-"]) == 5
