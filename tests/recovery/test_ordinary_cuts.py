"""What a server mends itself is an ordinary repair here; what it has left behind is none; next commands say so."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

import binlogtool
from binlogtool.findings import Severity
from binlogtool.repair.plan_types import RepairPolicy
from tests.cli.invoke import invoke


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return target


@pytest.mark.full_corpus
def test_garbage_behind_a_mysql_log_is_cut_where_the_server_cuts_it(corpus: Path, tmp_path: Path) -> None:
    log = copied(corpus / "found/servers/garbage-tail", tmp_path / "d") / "bin.000001"
    before = log.read_bytes()
    result = invoke("truncate-to-durable", "--apply", "-y", str(log))
    assert result.code == 0, result
    assert log.read_bytes() == before[:19_998]


@pytest.mark.full_corpus
def test_a_list_of_a_file_that_the_crash_never_made_is_mended(corpus: Path, tmp_path: Path) -> None:
    folder = copied(corpus / "found/servers/sphinx-meta", tmp_path / "d")
    (hint,) = [line for line in invoke("verify", str(folder)).text.splitlines() if line.startswith("next: ")]
    words = shlex.split(hint)[2:]
    assert words == ["truncate-to-durable", "--fix-meta", str(folder)]
    plan = invoke(*words)
    assert plan.code == 0 and "(binlog.001)" in plan.text and "its transactions are lost" in plan.text, plan
    assert invoke(*words, "--apply", "-y").code == 0
    assert (folder / "binlog.meta").read_bytes() == b"SPLI\x05\0\0\0\x01\0"
    assert binlogtool.verify([folder]).count_findings(Severity.ERROR) == 0


@pytest.fixture
def mariadb(samples: Path, tmp_path: Path) -> Path:
    """MariaDB's logs; the third one before the last is torn while it was in use, as a crash leaves it."""
    folder = copied(samples / "mysql_binlog/sets/mariadb", tmp_path / "m")
    log = bytearray((folder / "rot-bin.000008").read_bytes())
    log[4 + 17] |= 1  # in use: no checksum covers this flag
    log += bytes.fromhex("00000000 02 01000000 50000000")
    (folder / "rot-bin.000008").write_bytes(log)
    return folder


def test_a_log_that_the_server_left_behind_is_not_proposed_for_a_cut(mariadb: Path) -> None:
    asked = invoke("verify", str(mariadb)).text
    assert f"next: binlogtool truncate-to-durable {mariadb}\n" in asked
    (mariadb / "rot-bin.000009").write_bytes(b"")
    with (mariadb / "rot-bin.index").open("ab") as index:
        index.write((mariadb / "rot-bin.index").read_bytes().splitlines(keepends=True)[-1].replace(b"8", b"9"))
    plan = binlogtool.plan_truncate(mariadb)
    assert "rot-bin.000008" not in {Path(file.path).name for file in plan.changes}
    assert any("rot-bin.000009 is newer: the server no longer appends here" in note for note in plan.notes)
    assert "truncate-to-durable" not in invoke("verify", str(mariadb)).text
    alone = binlogtool.plan_truncate(mariadb / "rot-bin.000008")
    assert any("no longer appends here" in note for note in alone.notes) and alone.changes


def test_a_plan_of_a_directory_says_what_changes_and_then_what_stays(samples: Path, tmp_path: Path) -> None:
    folder = copied(samples / "tarantool/chain", tmp_path / "t")
    last = folder / "00000000000000000436.xlog"
    last.write_bytes(last.read_bytes()[:-4] + b"\xd5\xba\x0b\xab\xce")
    lines = invoke("truncate-to-durable", str(folder)).text.splitlines()
    assert [line.split()[0] for line in lines if line.split()[0] in ("plan", "stay")] == ["plan", "stay"]
    assert lines[0].startswith(f"plan   {last}: cut 5 of") and "  5 files: nothing to remove" in lines[-3].replace(
        "stay ", ""
    )


def test_the_last_number_of_a_plan_is_that_of_the_last_record_kept(samples: Path, tmp_path: Path) -> None:
    (source,) = (samples / "readme/flipped-bit").glob("*.xlog")
    log = tmp_path / source.name
    shutil.copyfile(source, log)
    lines = invoke("dump", "-O", "jsonl", "--on-damage", "stop", str(log)).text.splitlines()
    last = json.loads(lines[-1])["seq"]
    plan = binlogtool.plan_truncate(log, policy=RepairPolicy(allow_discard_valid=True))
    (file,) = plan.files
    assert file.proof["last_seq"] == last
    assert file.proof["records_kept"] == len(lines)
    assert "None" not in invoke("truncate-to-durable", "--allow-discard-valid", str(log)).text


def test_the_number_of_a_record_in_a_finding_is_what_record_shows(samples: Path, tmp_path: Path) -> None:
    (log,) = (samples / "readme/flipped-bit").glob("*.xlog")
    (found,) = [f for f in binlogtool.verify([log]).findings if f.id == "checksum-mismatch"]
    shown = invoke("hexdump-annotate", "-O", "json", "--record", str(found.record), str(log))
    assert shown.code == 1  # it shows damage
    assert found.offset in [field["start"] for field in json.loads(shown.out)["fields"]]


@pytest.mark.parametrize("option", ["--redo", "--keyfile", "--schema"])
def test_a_next_command_carries_the_options_of_the_reading(
    option: str, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (source,) = (samples / "readme/torn-tail").glob("*.xlog")
    shutil.copyfile(source, "-dash it's.xlog")
    Path("a file").write_bytes(b"1;00112233445566778899aabbccddeeff\n" if option == "--keyfile" else b"")
    result = invoke("verify", "-f", "tarantool", option, "a file", "--", "-dash it's.xlog")
    (hint,) = [line for line in result.text.splitlines() if line.startswith("next: ")]
    words = shlex.split(hint)[1:]
    assert words == [
        "binlogtool",
        "truncate-to-durable",
        "--format",
        "tarantool",
        option,
        "a file",
        "./-dash it's.xlog",
    ]
    assert invoke(*words[1:]).code == 0
