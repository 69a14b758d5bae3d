"""Which files form a log, and which format a file has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool import formats
from binlogtool.core.open_file import detect_format, find_format
from binlogtool.core.resolve_paths import find_logs_in_directory
from binlogtool.errors import InputOutputError, UnknownFormatError, UsageError
from binlogtool.format_api.format import FileHead


@pytest.fixture
def log(samples: Path) -> bytes:
    return (samples / "drizzle/basic-checksum.log").read_bytes()


def test_a_directory_lists_the_logs_of_each_format_in_it(tmp_path: Path, log: bytes, samples: Path) -> None:
    (tmp_path / "transaction.log").write_bytes(log)
    (tmp_path / "notes.txt").write_text("no log")
    deep = tmp_path / "data"
    deep.mkdir()
    (xlog,) = (samples / "readme/intact").glob("*.xlog")
    shutil.copy(xlog, deep)
    found = [(log.format.name, log.directory, log.names) for log in find_logs_in_directory(str(tmp_path), None).logs]
    assert found == [("tarantool", str(deep), [xlog.name]), ("drizzle", str(tmp_path), ["transaction.log"])]


def test_each_directory_is_a_log_of_its_own_but_for_members_that_say_otherwise(tmp_path: Path) -> None:
    for name in ("a/00000000000000000000.xlog", "a/512/0/00000000000000000002.run", "b/00000000000000000000.xlog"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"XLOG\n0.13\n")
    found = [
        (Path(log.directory).name, log.names)
        for log in find_logs_in_directory(str(tmp_path), find_format("tarantool")).logs
    ]
    assert found == [
        ("a", ["00000000000000000000.xlog", "512/0/00000000000000000002.run"]),
        ("b", ["00000000000000000000.xlog"]),
    ]


def test_a_directory_without_logs_is_said_to_have_none(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("started\n" * 100)
    with pytest.raises(UnknownFormatError, match="no log files"):
        find_logs_in_directory(str(tmp_path), None)


def test_a_directory_that_does_not_exist_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError):
        find_logs_in_directory(str(tmp_path / "nothing"), None)


def test_directories_below_a_bound_are_not_entered(tmp_path: Path, log: bytes) -> None:
    deep = tmp_path / "a/b/c/d"
    deep.mkdir(parents=True)
    (deep / "transaction.log").write_bytes(log)
    with pytest.raises(UnknownFormatError):
        find_logs_in_directory(str(tmp_path), None)


def test_detection_looks_at_the_content_not_at_the_name(log: bytes) -> None:
    assert detect_format(FileHead(log[:4096], "00000000000000000000.xlog", len(log))).name == "drizzle"


def test_a_file_of_no_known_format_is_refused_with_what_was_seen() -> None:
    with pytest.raises(UnknownFormatError, match="7f 45 4c 46"):
        detect_format(FileHead(b"\x7fELF" + bytes(100), "a.out", 104))


def test_an_unknown_format_name_is_a_usage_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="tarantool"):
        find_format("oracle")


def test_the_registry_has_the_formats_of_this_release() -> None:
    assert formats.list_names()[:2] == ["tarantool", "drizzle"]


def test_a_mixed_call_reports_every_path(tmp_path: Path, log: bytes) -> None:
    good, bad = tmp_path / "transaction.log", tmp_path / "x.bin"
    good.write_bytes(log)
    bad.write_bytes(b"\x00\x01\x02\x03" * 50)
    report = binlogtool.verify([good, bad, tmp_path / "nothing"])
    assert [f.records for f in report.files] == [67]
    assert [(Path(f.path).name, f.exit_code) for f in report.failures] == [("x.bin", 3), ("nothing", 4)]
    assert report.status == "incomplete"
