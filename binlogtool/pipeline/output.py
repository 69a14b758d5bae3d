"""Output that appears whole or not at all: written beside its place under a temporary name, synced, renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from binlogtool.errors import InputOutputError, RefusedError

_OWN_NAMES = ("part-", "_SUCCESS", "_metadata", "_common_metadata", ".part-", "._SUCCESS.crc")


@contextlib.contextmanager
def staged(output: Path, *, overwrite: bool, inputs: list[Path]) -> Iterator[Path]:
    """A temporary path beside `output`; what is there at the end of the block becomes `output`.

    When the block raises, or leaves nothing there, `output` stays as it was.

    Raises:
        RefusedError: `output` exists and `overwrite` is not given, or replacing it would lose something else.
        InputOutputError: it cannot be put into place.
    """
    _allowed(output, overwrite=overwrite, inputs=inputs)
    stage = output.with_name(f"{output.name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        yield stage
        if stage.exists():
            _sync(stage)
            _publish(stage, output)
    except OSError as error:
        raise InputOutputError(f"{output}: cannot be written: {error.strerror}") from error
    finally:
        discard(stage)


def _allowed(output: Path, *, overwrite: bool, inputs: list[Path]) -> None:
    if not output.parent.is_dir():
        raise InputOutputError(f"{output.parent}: no such directory")
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise RefusedError(f"{output} exists; name another output or give --overwrite")
    if output.is_symlink():
        raise RefusedError(f"{output} is a symbolic link; it is not replaced")
    mine = output.resolve()
    for path in inputs:
        if mine == path.resolve() or mine in path.resolve().parents:
            raise RefusedError(f"{output} holds the input {path}; it is not replaced")
    foreign = [p.name for p in output.iterdir() if not p.name.startswith(_OWN_NAMES)] if output.is_dir() else []
    if foreign:
        raise RefusedError(f"{output} holds other files ({foreign[0]}); it is not replaced")


def _publish(stage: Path, output: Path) -> None:
    """Renames; a directory in the way is first moved aside, and comes back if the second rename fails."""
    if not output.is_dir():
        stage.replace(output)
    else:
        aside = stage.with_name(stage.name.replace(".tmp-", ".old-"))
        output.rename(aside)
        try:
            stage.rename(output)
        except OSError:
            aside.rename(output)
            raise
        shutil.rmtree(aside)
    _sync_one(output.parent)


def _sync(stage: Path) -> None:
    for path in [*stage.rglob("*"), stage] if stage.is_dir() else [stage]:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard(stage: Path) -> None:
    """Removes what was written so far: nothing will be published."""
    if stage.is_dir():
        shutil.rmtree(stage, ignore_errors=True)
    else:
        stage.unlink(missing_ok=True)
