"""Output that appears whole or not at all: written beside its target under a temporary name, synced, renamed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path

from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.pipeline.claims import hold_lock_file, remove_dead_stages
from binlogtool.pipeline.writers.table_form import RECORD_PARTITIONS
from binlogtool.publish import rename_without_replacing

_OUTPUT_NAMES = ("part-", "_SUCCESS", "_metadata", "_common_metadata", ".part-", "._SUCCESS.crc")
TABLES_FILE = "_tables.json"
"""File that lists the table directories of an output."""
_PARTITION_PREFIXES = tuple(f"{column}=" for column in RECORD_PARTITIONS)


@contextlib.contextmanager
def stage_output(output: Path, *, overwrite: bool, inputs: list[Path]) -> Iterator[Path]:
    """Provide a temporary path beside `output`; what exists there at the end of the block becomes `output`.

    If the block raises, or leaves nothing there, `output` stays unchanged.

    Raises:
        RefusedError: `output` exists and `overwrite` is False, or replacing it would delete other files.
        InputOutputError: it cannot be put into place.
    """
    _check_replaceable(output, overwrite=overwrite, inputs=inputs)
    stage = output.with_name(f"{output.name}.tmp-{_random_suffix()}")
    try:
        with hold_lock_file(stage):
            try:
                yield stage
                if stage.exists():
                    _sync_tree(stage)
                    _check_replaceable(output, overwrite=overwrite, inputs=inputs)  # it may have been created meanwhile
                    _publish(stage, output)
            finally:
                discard_stage(stage)
    except FileExistsError as error:
        raise RefusedError(f"{output} appeared while the work was under way; it is not replaced") from error
    except OSError as error:
        raise InputOutputError(f"{output}: cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def stage_log_set(output: str | PathLike[str], suffixes: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Provide a directory to be created, and the base name of the files to write there; together they become
    `output`.

    A new directory appears in one step. In an existing directory the files appear one by one, the index last; if that
    fails, they are removed again. Nothing is ever replaced.

    Args:
        output: a directory (it ends with a slash, or exists), where the files get the base name `binlog`; otherwise
            directory and base name.
        suffixes: matches what follows the base name in file names of such a set.

    Raises:
        RefusedError: files with this base name exist.
        InputOutputError: the files cannot be put into place.
    """
    folder, base = _split_set_path(output)
    folder_exists = folder.is_dir()
    _check_no_set_files(folder, base, suffixes)
    stage = (folder / base if folder_exists else folder).with_name(
        f"{base if folder_exists else folder.name}.tmp-{_random_suffix()}"
    )
    try:
        with hold_lock_file(stage):
            try:
                yield stage, base
                if stage.exists():
                    _sync_tree(stage)
                    _check_no_set_files(folder, base, suffixes)
                    _move_files(stage, folder) if folder_exists else rename_without_replacing(stage, folder)
                    _sync_path(folder if folder_exists else folder.parent)
            finally:
                discard_stage(stage)
    except FileExistsError as error:
        name = error.filename or fspath(output)
        raise RefusedError(f"{name} appeared while the work was under way; it is not replaced") from error
    except OSError as error:
        raise InputOutputError(f"{fspath(output)}: cannot be written: {error.strerror}") from error


def remove_leftovers(output: str | PathLike[str], *, is_set: bool) -> list[str]:
    """Remove what killed runs left of this output, and return what was done as messages.

    is_set: `output` is a log set, as for `stage_log_set`.
    """
    path = Path(output)
    if not is_set:
        return remove_dead_stages(path)
    folder, base = _split_set_path(output)
    return remove_dead_stages(folder / base if folder.is_dir() else folder)


def _split_set_path(output: str | PathLike[str]) -> tuple[Path, str]:
    """Return the directory and the base name that an output path of a log set means."""
    text = fspath(output)
    path = Path(text)
    is_folder = text.endswith("/") or path.is_dir()
    folder, base = (path, "binlog") if is_folder else (path.parent, path.name)
    if base.isdigit():
        raise UsageError(f"{text}: the name of a log needs a letter")
    if not (folder.parent if is_folder else folder).is_dir():
        missing = folder.parent if is_folder else folder
        meaning = f"a directory {folder}" if is_folder else f"files {base}.000001, … in {folder}"
        raise InputOutputError(f"{missing}: no such directory ({text} means {meaning}); make it first")
    return folder, base


def _check_no_set_files(folder: Path, base: str, suffixes: re.Pattern[str]) -> None:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(base) and suffixes.fullmatch(path.name[len(base) :]):
            raise RefusedError(f"{path} exists; files of a log are never replaced: name another place")


def _move_files(stage: Path, folder: Path) -> None:
    """Move every file of `stage` into `folder`, or none."""
    moved: list[Path] = []
    try:
        for path in sorted(stage.iterdir()):
            target = folder / path.name
            rename_without_replacing(path, target)
            moved.append(target)
    except BaseException:
        for target in moved:
            target.unlink()
        raise


def _random_suffix() -> str:
    return uuid.uuid4().hex[:8]


def _check_replaceable(output: Path, *, overwrite: bool, inputs: list[Path]) -> None:
    """Raise unless `output` can be created, or replaced without deleting anything but an earlier output."""
    if not output.parent.is_dir():
        raise InputOutputError(f"{output.parent}: no such directory")
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise RefusedError(f"{output} exists; name another output or give --overwrite")
    if output.is_symlink():
        raise RefusedError(f"{output} is a symbolic link; it is not replaced")
    if not output.is_file() and not output.is_dir():
        raise RefusedError(f"{output} is no regular file; it is not replaced")
    resolved = output.resolve()
    for path in inputs:
        if resolved == path.resolve() or resolved in path.resolve().parents:
            raise RefusedError(f"{output} holds the input {path}; it is not replaced")
    own_prefixes, tables = (*_OUTPUT_NAMES, *_PARTITION_PREFIXES), _read_table_directories(output)
    present = [path.name for path in output.iterdir()] if output.is_dir() else []
    foreign = [name for name in present if not name.startswith(own_prefixes) and name not in tables]
    if foreign:
        raise RefusedError(f"{output} holds other files ({foreign[0]}); it is not replaced")


def _read_table_directories(output: Path) -> set[str]:
    """Return the table directories that the output's own list names, and the name of that list."""
    try:
        listing = json.loads((output / TABLES_FILE).read_text())
        return {TABLES_FILE, *(str(one["directory"]) for one in listing["tables"])}
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _publish(stage: Path, output: Path) -> None:
    """Rename `stage` to `output`; an existing directory is first renamed aside and restored if the second rename
    fails.

    Raises:
        OSError: FileExistsError if another process created `output` meanwhile.
    """
    if output.is_dir():
        aside = stage.with_name(stage.name.replace(".tmp-", ".old-"))
        output.rename(aside)
        try:
            rename_without_replacing(stage, output)
        except OSError:
            aside.rename(output)
            raise
        shutil.rmtree(aside)
    elif os.path.lexists(output):
        stage.replace(output)
    else:
        rename_without_replacing(stage, output)
    _sync_path(output.parent)


def _sync_tree(stage: Path) -> None:
    for path in [*stage.rglob("*"), stage] if stage.is_dir() else [stage]:
        _sync_path(path)


def _sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def discard_stage(stage: Path) -> None:
    """Delete what was written so far, so that nothing is published."""
    if stage.is_dir():
        shutil.rmtree(stage, ignore_errors=True)
    else:
        stage.unlink(missing_ok=True)
