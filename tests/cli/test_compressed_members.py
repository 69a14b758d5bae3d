"""Compressed files of a log in a directory: they are read, or said to be unread with a status that is not 0."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
from pathlib import Path

import pytest
import zstandard

from tests.cli.invoke import ROOT, invoke
from tests.cli.samples import damaged_log, plain_log

CORPUS = ROOT / "tests" / "corpus" / "guides" / "mariadb"
PACK = {
    ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress, ".xz": lzma.compress, ".bz2": bz2.compress,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    (made / "transaction.log").write_bytes(plain_log())
    (made / "notes.txt.gz").write_bytes(gzip.compress(b"notes"))
    return made


def test_other_compressed_files_are_no_part_of_the_log(folder: Path) -> None:
    assert invoke("verify", str(folder)).code == 0
    assert invoke("dump", str(folder)).code == 0


@pytest.mark.parametrize("end", [".gz", ".zst", ".xz", ".bz2", ".lz4"])
def test_verify_reads_what_it_can_unpack(folder: Path, end: str) -> None:
    if end == ".lz4":
        PACK[end] = pytest.importorskip("lz4.frame").compress
    packed = folder / f"transaction.log.1{end}"
    packed.write_bytes(PACK[end](plain_log()))
    done = invoke("verify", "-O", "json", str(folder))
    files = {file["path"]: file["records"] for file in json.loads(done.out)["files"]}
    assert done.code == 0 and files == {str(folder / "transaction.log"): 3, str(packed): 3}
    packed.write_bytes(PACK[end](damaged_log()))
    assert invoke("verify", str(folder)).code == 1


def test_verify_reports_what_it_cannot_unpack(folder: Path) -> None:
    packed = folder / "transaction.log.1.zip"
    packed.write_bytes(b"PK\x03\x04")
    done = invoke("verify", "-O", "json", str(folder))
    value = json.loads(done.out)
    assert (done.code, value["status"]) == (6, "incomplete")
    assert [(one["path"], "compressed" in one["message"]) for one in value["failures"]] == [(str(packed), True)]


def test_lz4_without_its_library_is_one_clear_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    packed = folder / "transaction.log.1.lz4"
    packed.write_bytes(b"\x04\x22\x4d\x18")
    text = "the file is compressed with lz4, which cannot be read; unpack it, or install the Python package lz4"
    done = invoke("verify", "-O", "json", str(folder))
    assert (done.code, done.err) == (4, f"binlogtool: {packed}: {text}\n")
    assert json.loads(done.out)["failures"] == [{"path": str(packed), "message": f"{packed}: {text}", "exit_code": 4}]
    done = invoke("dump", str(packed))
    assert (done.code, done.err) == (4, f"binlogtool: {packed}: {text}\n")


def test_damaged_lz4_is_a_finding(folder: Path) -> None:
    frame = pytest.importorskip("lz4.frame")
    data = frame.compress(plain_log() * 3000, block_size=frame.BLOCKSIZE_MAX64KB)
    (folder / "transaction.log.1.lz4").write_bytes(data[: len(data) // 2])
    done = invoke("verify", str(folder))
    assert done.code == 1 and b"compression-error" in done.out


@pytest.mark.parametrize("end", [".gz", ".xz"])
@pytest.mark.parametrize("command", ["dump", "stats", "convert --to jsonl -o OUT"])
def test_no_command_leaves_a_part_of_a_log_out_with_status_0(folder: Path, end: str, command: str) -> None:
    (folder / f"transaction.log.1{end}").write_bytes(PACK[end](plain_log()))
    words = [str(folder.parent / "out") if word == "OUT" else word for word in command.split()]
    assert invoke(*words, str(folder / "transaction.log")).code == 0
    (folder.parent / "out").unlink(missing_ok=True)
    done = invoke(*words, str(folder))
    assert done.code == 6 and f"transaction.log.1{end}: not checked: the file is compressed" in done.err


@pytest.mark.parametrize("command", ["replay-dry-run", "diagnose"])
def test_what_a_server_does_is_not_in_doubt_by_a_file_that_it_does_not_read(folder: Path, command: str) -> None:
    before = invoke(command, str(folder))
    (folder / "transaction.log.1.gz").write_bytes(gzip.compress(plain_log()))
    after = invoke(command, str(folder))
    assert (after.code, after.text) == (before.code, before.text)


def test_a_directory_of_compressed_logs_alone_is_verified(tmp_path: Path) -> None:
    for name in ("mariadb-bin.000001", "mariadb-bin.000002"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((CORPUS / name).read_bytes()))
    value = json.loads(invoke("verify", "-O", "json", str(tmp_path)).out)
    assert [one["members"] for one in value["sets"]] == [["mariadb-bin.000001", "mariadb-bin.000002"]]
    assert [one["path"] for one in value["files"]] == [f"{tmp_path}/mariadb-bin.00000{n}.gz" for n in (1, 2)]
    assert value["status"] == "clean"


def test_a_compressed_member_is_no_gap_in_a_log(tmp_path: Path) -> None:
    (tmp_path / "mariadb-bin.000001.bz2").write_bytes(bz2.compress((CORPUS / "mariadb-bin.000001").read_bytes()))
    (tmp_path / "mariadb-bin.000002").write_bytes((CORPUS / "mariadb-bin.000002").read_bytes())
    assert invoke("verify", str(tmp_path)).code == 0
    (tmp_path / "mariadb-bin.000004").write_bytes((CORPUS / "mariadb-bin.000002").read_bytes())
    assert "mariadb-bin.000003 does not exist" in invoke("verify", str(tmp_path)).text


def test_other_commands_say_what_is_compressed_in_a_directory_without_another_log(tmp_path: Path) -> None:
    (tmp_path / "transaction.log.gz").write_bytes(gzip.compress(plain_log()))
    done = invoke("dump", str(tmp_path))
    assert done.code == 3 and "compressed: transaction.log.gz (name the file itself to read it: " in done.err


def test_a_replay_of_a_compressed_file_that_is_no_log_names_it(tmp_path: Path) -> None:
    path = tmp_path / "notes.000001.gz"
    path.write_bytes(gzip.compress(b"# some text\n" * 100))
    result = invoke("replay-dry-run", str(path))
    assert result.code == 3 and f"{path}: no known log format" in result.err and "unpacked" not in result.err
