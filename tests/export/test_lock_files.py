"""Test that files of a killed conversion are removed by the next run to the same name if they are provably its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from binlogtool import convert
from binlogtool.core.record_and_selection_types import RecordBlock
from binlogtool.export.atomic_output import create_work_folder, stage_output
from binlogtool.export.manifest import Manifest
from binlogtool.format_api.encode_json import to_json_text

_KILLED = """
import sys, time
from pathlib import Path
from binlogtool.export.atomic_output import stage_output
with stage_output(Path(sys.argv[1]), overwrite=False, inputs=[]) as stage:
    stage.mkdir()
    (stage / "part-0").write_text("half")
    print(stage, flush=True)
    time.sleep(60)
"""


def to_lines(source: Path, output: Path) -> Manifest:
    def lines(block: RecordBlock) -> bytes:
        return b"".join(to_json_text(body).encode() + b"\n" for body in block.bodies)

    return convert([source], "jsonl", output, lines=lines)


@pytest.fixture
def good(samples: Path) -> Path:
    return samples / "drizzle" / "basic-checksum.log"


def test_files_of_a_killed_run_are_removed_and_reported(good: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with subprocess.Popen([sys.executable, "-c", _KILLED, str(out)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stage = Path(process.stdout.readline().strip())
        first = to_lines(good, out)
        assert stage.is_dir() and "kept" in first.details["leftovers"][0]
        out.unlink()
        process.send_signal(signal.SIGKILL)
        process.wait()
    second = to_lines(good, out)
    assert second.details["leftovers"] == [f"{stage}: removed: left by an interrupted conversion"]
    assert os.listdir(tmp_path) == ["out"]


def test_the_lock_file_of_a_run_that_was_killed_before_it_wrote_is_removed_and_reported(
    good: Path, tmp_path: Path
) -> None:
    """Spark takes seconds to start: until then there is the mark alone."""
    out, script = (
        tmp_path / "out",
        _KILLED.replace("stage.mkdir()", "").replace('(stage / "part-0").write_text("half")', ""),
    )
    with subprocess.Popen([sys.executable, "-c", script, str(out)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stage = Path(process.stdout.readline().strip())
        lock_file = stage.with_name(f".{stage.name}.binlogtool")
        assert lock_file.exists() and not stage.exists()
        assert "leftovers" not in to_lines(good, out).details and lock_file.exists()
        out.unlink()
        process.send_signal(signal.SIGKILL)
        process.wait()
    foreign = tmp_path / ".out.tmp-00000000.binlogtool"
    foreign.write_text("{}")
    (tmp_path / "p").touch()  # names that are shorter than any mark
    assert to_lines(good, out).details["leftovers"] == [f"{lock_file}: removed: left by an interrupted conversion"]
    assert not lock_file.exists() and foreign.exists()


def test_files_that_are_not_provably_ours_stay_and_are_reported(good: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "out.tmp-0123abcd"
    other.mkdir()
    (other / "precious").write_text("x")
    (tmp_path / ".out.tmp-0123abcd.binlogtool").write_text("{}")
    (tmp_path / "out.old-0123abcd").write_text("the output before")
    result = to_lines(good, out)
    assert (other / "precious").exists() and (tmp_path / "out.old-0123abcd").exists()
    assert [text.split(": ", 1)[0] for text in result.details["leftovers"]] == [
        str(tmp_path / "out.old-0123abcd"), str(other),
    ]  # fmt: skip


def test_a_run_that_ends_leaves_no_lock_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError), stage_output(tmp_path / "out", overwrite=False, inputs=[]) as stage:
        stage.write_text("x")
        assert len(os.listdir(tmp_path)) == 2
        raise ValueError
    assert os.listdir(tmp_path) == []


_WORKING = """
import time
from binlogtool.export.atomic_output import create_work_folder
with create_work_folder() as folder:
    (folder / "blocks").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_the_work_folder_of_a_killed_run_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    foreign = [tmp_path / "binlogtool-abcd1234", tmp_path / "binlogtool-notes", tmp_path / "other"]
    for path in foreign:
        path.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", _WORKING]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        work_folder = Path(process.stdout.readline().strip())
        with create_work_folder():
            assert work_folder.is_dir()  # its maker is alive
        process.send_signal(signal.SIGKILL)
        process.wait()
    with create_work_folder() as own:
        assert not work_folder.exists() and own.is_dir()
    assert sorted(tmp_path.iterdir()) == sorted(foreign)
