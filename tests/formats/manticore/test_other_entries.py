"""Directories and links that are named like files of the binary log, an incomplete list, and an empty directory.

Whether a server starts is what Sphinx 2.2.11 and Manticore 2.8.2 did (`test_the_servers_do_what_is_recorded`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import UnknownFormatError
from tests.formats.manticore import starts, version7
from tests.formats.manticore.old_damages import META

LAST, NEXT, OTHER = "binlog.003", "binlog.004", "binlog.009"
"""The last listed log of `v7-rotation`, the log that the server creates after the replay, and a name of neither."""
CASES = [
    (META, "directory", False),
    (META, "dangling", True),
    (LAST, "directory", False),
    (LAST, "dangling", False),
    (NEXT, "directory", False),
    (NEXT, "dangling", True),
    (OTHER, "directory", True),
    (OTHER, "dangling", True),
]
"""Name, kind, whether the server starts."""
SHORT_LISTS = [
    (b"\x05", True, True),
    (b"\x05\x01", False, True),
    (b"\x05\x00\x00", True, True),
    (b"\x05\x01\x00", False, False),
    (b"\x05\x00\x01", True, False),
    (b"\x00\x01", False, True),
    (b"\x01\x00\x01", True, False),
]
"""Bytes of the version in the list of files, and whether Sphinx and Manticore start with them."""


def place(folder: Path, name: str, kind: str) -> Path:
    """Put an entry of this kind in the place of a file."""
    path = folder / name
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere" if kind == "dangling" else kind)
    return folder


def predicted(folder: Path, version: int = 7) -> bool | None:
    """Return whether a server starts that writes logs of a version."""
    (result,) = binlogtool.replay([folder], format="manticore", against={"version": version, "tables": {}})
    return result.starts


@pytest.mark.parametrize(("name", "kind", "expected"), CASES)
def test_a_start_with_an_entry_that_is_no_file_is_predicted(
    tmp_path: Path, name: str, kind: str, expected: bool
) -> None:
    folder = place(version7.written(tmp_path / "log", version7.files("v7-rotation")), name, kind)
    assert predicted(folder) is expected


@pytest.mark.parametrize(("version", "sphinx", "manticore"), SHORT_LISTS)
def test_a_start_with_a_list_that_ends_inside_its_version_is_predicted(
    tmp_path: Path, version: bytes, sphinx: bool, manticore: bool
) -> None:
    folder = version7.written(tmp_path / "log", {META: b"SPLI" + version})
    assert (predicted(folder, 5), predicted(folder, 7)) == (sphinx, manticore)


@pytest.mark.server
@pytest.mark.parametrize("server", starts.SERVERS)
def test_the_servers_do_what_is_recorded(corpus: Path, tmp_path: Path, server: str) -> None:
    found = starts.search_server(server, corpus)
    if found is None:
        pytest.skip(f"no {server}, or no logs of it")
    name, last = ("mixed-kill9", 1) if server == "sphinx-2.2" else ("v7-rotation", 3)
    names = {META: META, LAST: f"binlog.{last:03}", NEXT: f"binlog.{last + 1:03}", OTHER: OTHER}
    for at, (entry, kind, expected) in enumerate(CASES):
        folder = place(version7.written(tmp_path / str(at), found.logs[name]), names[entry], kind)
        assert starts.started(found, folder)[0].started is expected, (entry, kind)
    for at, (version, *expected) in enumerate(SHORT_LISTS):
        folder = version7.written(tmp_path / f"list {at}", {META: b"SPLI" + version})
        assert starts.started(found, folder)[0].started is expected[server == "manticore-2.8"], version
    assert starts.started(found, version7.written(tmp_path / "empty", {}))[0].started


@pytest.mark.parametrize("name", [META, LAST])
def test_a_link_to_a_file_of_the_log_leaves_the_start_undetermined(tmp_path: Path, name: str) -> None:
    folder = version7.written(tmp_path / "log", version7.files("v7-rotation"))
    copy = tmp_path / "elsewhere"
    copy.write_bytes((folder / name).read_bytes())
    assert predicted(place(folder, name, str(copy))) is None


def test_a_server_starts_in_an_empty_directory_whose_format_is_named(tmp_path: Path) -> None:
    (tmp_path / "binlog.lock").touch()
    assert predicted(tmp_path) is True
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UnknownFormatError):
        predicted(tmp_path)
