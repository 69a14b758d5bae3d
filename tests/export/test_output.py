from __future__ import annotations

from pathlib import Path

import pytest

from binlogtool.errors import InputOutputError, RefusedError
from binlogtool.export.atomic_output import discard_stage, stage_output


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_stands_at_the_output_until_the_block_is_left(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with stage_output(out, overwrite=False, inputs=[]) as stage:
        stage.write_text("half")
        assert not out.exists()
        assert stage.parent == tmp_path and stage.name.startswith("out.tmp-")
        stage.write_text("whole")
    assert out.read_text() == "whole"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_neither_output_nor_rest(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), stage_output(tmp_path / "out", overwrite=False, inputs=[]) as stage:
        stage.mkdir()
        (stage / "part-0").write_text("x")
        raise error
    assert names(tmp_path) == []


def test_a_discarded_stage_publishes_nothing_and_keeps_the_old_output(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    with stage_output(tmp_path / "out", overwrite=True, inputs=[]) as stage:
        stage.write_text("new")
        discard_stage(stage)
    assert (tmp_path / "out").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_an_existing_output_is_refused_without_overwrite(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    with pytest.raises(RefusedError, match="--overwrite"), stage_output(tmp_path / "out", overwrite=False, inputs=[]):
        pytest.fail("the block must not run")
    assert (tmp_path / "out").read_text() == "old"


def test_overwrite_replaces_a_directory_of_earlier_output_as_a_whole(tmp_path: Path) -> None:
    old = tmp_path / "out"
    old.mkdir()
    (old / "part-00000.parquet").write_text("old")
    (old / "_SUCCESS").write_text("")
    with stage_output(old, overwrite=True, inputs=[]) as stage:
        stage.mkdir()
        (stage / "part-00007.parquet").write_text("new")
    assert names(old) == ["part-00007.parquet"]
    assert names(tmp_path) == ["out"]


def test_overwrite_never_replaces_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.odt").write_text("x")
    with pytest.raises(RefusedError, match=r"thesis\.odt"), stage_output(tmp_path / "home", overwrite=True, inputs=[]):
        pytest.fail("the block must not run")
    assert (tmp_path / "home" / "thesis.odt").exists()


def test_overwrite_never_replaces_an_input_or_a_directory_above_it(tmp_path: Path) -> None:
    log = tmp_path / "part-logs" / "part-a.xlog"
    log.parent.mkdir()
    log.write_text("log")
    for output in (log, log.parent):
        with pytest.raises(RefusedError, match="input"), stage_output(output, overwrite=True, inputs=[log]):
            pytest.fail("the block must not run")
    assert log.read_text() == "log"


def test_overwrite_never_replaces_what_a_link_stands_for(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(RefusedError, match="symbolic link"), stage_output(tmp_path / "link", overwrite=True, inputs=[]):
        pytest.fail("the block must not run")


def test_a_missing_parent_directory_is_said_at_once(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "out"
    with pytest.raises(InputOutputError, match="no such directory"), stage_output(missing, overwrite=False, inputs=[]):
        pytest.fail("the block must not run")


def test_a_write_error_is_an_input_output_error_of_that_output(tmp_path: Path) -> None:
    words = "out: cannot be written: No space left"
    with pytest.raises(InputOutputError, match=words), stage_output(tmp_path / "out", overwrite=False, inputs=[]):
        raise OSError(28, "No space left on device")
