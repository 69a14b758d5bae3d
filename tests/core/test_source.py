"""Sources: what is read, what moves under us, and what is refused."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

import binlogtool
from binlogtool.core.open_file import FileSource, StreamSource, Window, open_source
from binlogtool.errors import InputOutputError
from tests.verify_bytes import verify_bytes

SAMPLE = "drizzle/basic-checksum.log"


@pytest.fixture
def log(samples: Path, tmp_path: Path) -> Path:
    path = tmp_path / "transaction.log"
    path.write_bytes((samples / SAMPLE).read_bytes())
    return path


def test_a_compressed_log_reads_like_the_plain_one(log: Path) -> None:
    plain = binlogtool.verify([log]).files[0]
    data = log.read_bytes()
    for name, packed in (("a.gz", gzip.compress(data)), ("a.zst", zstandard.compress(data))):
        path = log.with_name(name)
        path.write_bytes(packed)
        got = binlogtool.verify([path]).files[0]
        assert (got.size, got.records, got.bytes, got.findings) == (plain.size, plain.records, plain.bytes, ())


def test_a_compressed_log_that_breaks_off_says_so(log: Path) -> None:
    path = log.with_name("a.gz")
    path.write_bytes(gzip.compress(log.read_bytes())[:-200])
    ids = {f.id for f in binlogtool.verify([path]).findings}
    assert "compression-error" in ids


def test_standard_input_reads_like_the_file(log: Path) -> None:
    code = "import binlogtool; r = binlogtool.verify(['-']).files[0]; print(r.records, r.size, len(r.findings))"
    run = subprocess.run([sys.executable, "-c", code], input=log.read_bytes(), capture_output=True, check=True)
    assert run.stdout.split() == [b"67", b"22501", b"0"]


def test_a_truncated_standard_input_is_a_torn_tail(log: Path) -> None:
    code = "import binlogtool; r = binlogtool.verify(['-']).files[0]; print(r.records, *(f.id for f in r.findings))"
    data = log.read_bytes()[:22481]
    run = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert run.stdout.split() == [b"66", b"torn-tail"]


def test_a_file_that_grows_is_a_finding(log: Path) -> None:
    source = FileSource(str(log))
    with log.open("ab") as more:
        more.write(b"x")
    changed = source.find_change_or_cut()
    assert changed is not None
    assert (changed.id, changed.facts["size_before"], changed.facts["size_after"]) == (
        "changed-while-read",
        22501,
        22502,
    )


def test_a_file_that_shrinks_while_it_is_read_ends_early_and_is_a_finding(log: Path) -> None:
    source = FileSource(str(log))
    os.truncate(log, 100)
    view = memoryview(bytearray(200))
    assert source.read_at(0, view) == 100
    changed = source.find_change_or_cut()
    assert changed is not None
    assert changed.id == "changed-while-read"


def test_a_file_that_is_replaced_while_it_is_read_is_a_finding(log: Path) -> None:
    source = FileSource(str(log))
    other = log.with_name("other")
    other.write_bytes(log.read_bytes())
    other.replace(log)
    changed = source.find_change_or_cut()
    assert changed is not None
    assert "replaced" in changed.message


def test_reading_leaves_times_and_bytes_alone(log: Path) -> None:
    before = (log.read_bytes(), log.stat().st_mtime_ns)
    binlogtool.verify([log])
    assert (log.read_bytes(), log.stat().st_mtime_ns) == before


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError, match="No such file"):
        open_source(str(tmp_path / "nothing"))


def test_a_link_is_followed_when_the_user_names_it_but_not_inside_a_directory(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.log"
    link.symlink_to(log)
    assert binlogtool.verify([link]).files[0].records == 67
    inside = tmp_path / "set"
    inside.mkdir()
    (inside / "transaction.log").symlink_to(log)
    assert binlogtool.verify([inside]).failures[0].exit_code == 3


def test_a_sparse_file_is_passed_over_in_time(tmp_path: Path, log: Path) -> None:
    with log.open("r+b") as file:
        file.truncate(1 << 38)
    got = binlogtool.verify([log]).files[0]
    assert (got.size, got.records, [f.id for f in got.findings]) == (1 << 38, 67, ["zero-tail"])
    assert got.bytes["preallocated"] == (1 << 38) - 22501


class Slow(io.RawIOBase):
    """A pipe that hands out few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 7))


def test_short_reads_of_a_pipe_are_joined() -> None:
    window = Window(StreamSource("pipe", Slow(bytes(range(100)))), 64)  # type: ignore[arg-type]
    window.load_range(0, 50)
    assert bytes(window.view(0, 50)) == bytes(range(50))
    window.load_range(40, 90)
    assert bytes(window.view(40, 90)) == bytes(range(40, 90))


def test_the_window_only_keeps_what_is_asked_for() -> None:
    window = Window(StreamSource("pipe", io.BytesIO(bytes(1000))), 64)
    for start in range(0, 900, 50):
        window.load_range(start, start + 60)
        assert len(window.buffer) <= 128


def test_an_empty_file_is_a_valid_empty_drizzle_log() -> None:
    report = verify_bytes("transaction.log", b"", format="drizzle")
    assert (report.records, report.size, report.durable_end, report.findings) == (0, 0, 0, ())


def test_a_file_that_vanishes_after_it_was_looked_at_is_a_failure_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bin.000001"
    path.write_bytes(b"\xfebin")
    seen = os.stat

    def once(name: object, *rest: object, **more: object) -> os.stat_result:
        result = seen(name, *rest, **more)  # type: ignore[arg-type]
        path.unlink(missing_ok=True)
        return result

    monkeypatch.setattr(os, "stat", once)
    with pytest.raises(InputOutputError):
        open_source(str(path))
