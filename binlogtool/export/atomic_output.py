"""Publish an output as a whole or not at all, locally or in an object store.

Each temporary output has a lock file beside it that its writer keeps locked. Only an output whose lock file names this
program, machine and user, and which no process holds locked, is removed. Other files with names of temporary outputs
are reported and kept.

Object stores cannot publish many files in one step. So `_SUCCESS` is uploaded last, the convention of table readers: a
directory without it is unfinished. Files that were uploaded before a failure are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import uuid
from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from binlogtool.core.remote_files import resolve_filesystem, translate_errors
from binlogtool.errors import InputOutputError, RefusedError, UsageError, name_os_errors
from binlogtool.export.manifest import ProgressCallback, ProgressStep, hash_file
from binlogtool.export.output_options import RECORD_PARTITIONS
from binlogtool.limits import MIB
from binlogtool.rename_without_replacing import fsync_path, rename_without_replacing

# --- Lock files for temporary outputs ---

SCHEMA = "binlogtool/stage/1"
_MAX_LOCK_FILE_BYTES = 4096
_PREFIX = "binlogtool-"
_WORK_FOLDER_NAME = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")


def _lock_path(stage: Path) -> Path:
    return stage.with_name(f".{stage.name}.binlogtool")


@contextlib.contextmanager
def hold_lock_file(stage: Path) -> Iterator[None]:
    """Hold the lock file of `stage` for the duration of a `with` block.

    Raises:
        OSError: the lock file cannot be created.
    """
    path = _lock_path(stage)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # not every file system supports locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, json.dumps({"schema": SCHEMA, "stage": stage.name, "host": socket.gethostname()}).encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def remove_and_report_abandoned_stages(output: Path) -> list[str]:
    """Remove what killed runs left beside this output; return messages about removed and kept files."""
    messages = []
    names = re.compile(rf"{re.escape(output.name)}\.(tmp|old)-[0-9a-f]{{8}}")
    try:
        present = set(os.listdir(output.parent))
    except OSError:
        return []
    for name in sorted(filter(names.fullmatch, present)):
        path = output.with_name(name)
        if f"{output.name}.old-" in name:
            messages.append(f"{path}: kept: the previous output, which an interrupted run was replacing")
        elif _is_dead(path) and _try_remove(path):
            messages.append(f"{path}: removed: left by an interrupted conversion")
        else:
            messages.append(f"{path}: kept: another conversion may be writing it, or it is not from binlogtool")
    return [*messages, *_remove_orphaned_locks(output, names, present)]


def _remove_orphaned_locks(output: Path, names: re.Pattern[str], present: set[str]) -> Iterator[str]:
    """Remove lock files of dead runs that ended before they created their output."""
    for lock_name in sorted(present):
        name = lock_name[1:].removesuffix(".binlogtool")
        if (
            not names.fullmatch(name)
            or name in present
            or lock_name != _lock_path(stage := output.with_name(name)).name
        ):
            continue
        with contextlib.suppress(OSError):
            if _is_own_lock_file_free(stage):
                _lock_path(stage).unlink()
                yield f"{_lock_path(stage)}: removed: left by an interrupted conversion"


@contextlib.contextmanager
def create_work_folder() -> Iterator[Path]:
    """Create a temporary directory for the duration of a `with` block; first remove those of killed runs."""
    temp_root = Path(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for name in os.listdir(temp_root):
            if _WORK_FOLDER_NAME.fullmatch(name) and _is_dead(temp_root / name):
                _try_remove(temp_root / name)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with hold_lock_file(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_dead(stage: Path) -> bool:
    """Return True if this program made `stage`, for this user and on this machine, and its writer ended."""
    try:
        return _is_own_file(os.lstat(stage)) and _is_own_lock_file_free(stage)
    except OSError:
        return False


def _is_own_lock_file_free(temporary_output: Path) -> bool:
    """Return True if the lock file of `temporary_output` is from this program, user and machine, and is not locked."""
    try:
        handle = os.open(_lock_path(temporary_output), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = json.loads(os.read(handle, _MAX_LOCK_FILE_BYTES))
        expected = {"schema": SCHEMA, "stage": temporary_output.name, "host": socket.gethostname()}
        return content == expected and _is_own_file(os.fstat(handle))
    except (OSError, ValueError):
        return False
    finally:
        os.close(handle)


def _is_own_file(status: os.stat_result) -> bool:
    has_single_link = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)
    return has_single_link and status.st_uid == os.geteuid()


def _try_remove(stage: Path) -> bool:
    try:
        shutil.rmtree(stage) if stage.is_dir() else stage.unlink()
        _lock_path(stage).unlink()
    except OSError:
        return False
    return True


# --- Output that appears whole or not at all ---

_OUTPUT_NAMES = ("part-", "_SUCCESS", "_metadata", "_common_metadata", ".part-", "._SUCCESS.crc")
TABLES_FILE = "_tables.json"
"""File that lists the table directories of an output."""
_PARTITION_PREFIXES = tuple(f"{column}=" for column in RECORD_PARTITIONS)


@contextlib.contextmanager
def stage_output(output: Path, *, overwrite: bool, inputs: list[Path]) -> Iterator[Path]:
    """Provide a temporary path beside `output`; at the end of the block, the file or directory there becomes `output`.

    If the block raises an exception, or creates nothing, `output` stays unchanged.

    Raises:
        RefusedError: `output` exists and `overwrite` is False, or replacing it would delete other files.
        InputOutputError: the output cannot be moved into place.
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
                    _replace_output_by_rename(stage, output)
            finally:
                discard_stage(stage)
    except FileExistsError as error:
        raise RefusedError(f"{output} was created by another process meanwhile; it is not replaced") from error
    except OSError as error:
        raise InputOutputError(f"{output}: cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def reserve_temporary_task_folder(temporary_output: Path) -> Iterator[Path]:
    """Provide a directory beside a temporary output, for files of its tasks; it does not exist yet, and is removed."""
    folder = temporary_output.with_name(f"{temporary_output.name[: -len(_random_suffix())]}{_random_suffix()}")
    with hold_lock_file(folder):
        try:
            yield folder
        finally:
            discard_stage(folder)


@contextlib.contextmanager
def stage_log_set(output: str | PathLike[str], suffixes: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Provide a directory to be created, and the base name of the files to write there; together they become `output`.

    A new directory appears in one step. In an existing directory the files appear one by one, the index last; if that
    fails, they are removed again. Nothing is ever replaced.

    Args:
        output: a directory (it ends with a slash, or exists), where the files get the base name `binlog`; otherwise
            directory and base name.
        suffixes: pattern of the rest of the file names after the base name.

    Raises:
        RefusedError: files with this base name exist.
        InputOutputError: the files cannot be moved into place.
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
                    _move_all_files_or_none(stage, folder) if folder_exists else rename_without_replacing(stage, folder)
                    fsync_path(folder if folder_exists else folder.parent)
            finally:
                discard_stage(stage)
    except FileExistsError as error:
        name = error.filename or fspath(output)
        raise RefusedError(f"{name} was created by another process meanwhile; it is not replaced") from error
    except OSError as error:
        raise InputOutputError(f"{fspath(output)}: cannot be written: {error.strerror}") from error


def remove_and_report_leftovers(output: str | PathLike[str], *, is_log_set: bool) -> list[str]:
    """Remove the temporary outputs that killed runs left for this output; return messages about them.

    is_log_set: `output` is a log set, as for `stage_log_set`.
    """
    path = Path(output)
    if not is_log_set:
        return remove_and_report_abandoned_stages(path)
    folder, base = _split_set_path(output)
    return remove_and_report_abandoned_stages(folder / base if folder.is_dir() else folder)


def _split_set_path(output: str | PathLike[str]) -> tuple[Path, str]:
    """Split the output path of a log set into directory and base name."""
    text = fspath(output)
    path = Path(text)
    is_folder = text.endswith("/") or path.is_dir()
    folder, base = (path, "binlog") if is_folder else (path.parent, path.name)
    if base.isdigit():
        raise UsageError(f"{text}: the base name of a log must contain a letter")
    if not (folder.parent if is_folder else folder).is_dir():
        missing = folder.parent if is_folder else folder
        meaning = f"a directory {folder}" if is_folder else f"files {base}.000001, … in {folder}"
        raise InputOutputError(f"{missing}: no such directory ({text} means {meaning}); create it first")
    return folder, base


def _check_no_set_files(folder: Path, base: str, suffixes: re.Pattern[str]) -> None:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(base) and suffixes.fullmatch(path.name[len(base) :]):
            raise RefusedError(f"{path} exists; log files are never replaced; name another output")


def _move_all_files_or_none(stage: Path, folder: Path) -> None:
    """Move all files of `stage` into `folder`, or none if one fails."""
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
    """Raise an error unless `output` can be created, or replaced without deleting anything but an earlier output."""
    if not output.parent.is_dir():
        raise InputOutputError(f"{output.parent}: no such directory")
    if not os.path.lexists(output):
        return
    if not overwrite:
        raise RefusedError(f"{output} exists; name another output or give --overwrite")
    if output.is_symlink():
        raise RefusedError(f"{output} is a symbolic link; it is not replaced")
    if not output.is_file() and not output.is_dir():
        raise RefusedError(f"{output} is not a regular file or directory; it is not replaced")
    resolved = output.resolve()
    for path in inputs:
        if resolved == path.resolve() or resolved in path.resolve().parents:
            raise RefusedError(f"{output} holds the input {path}; it is not replaced")
    own_prefixes, tables = (*_OUTPUT_NAMES, *_PARTITION_PREFIXES), _read_table_directories(output)
    present = sorted(path.name for path in output.iterdir()) if output.is_dir() else []
    foreign = [name for name in present if not name.startswith(own_prefixes) and name not in tables]
    if foreign:
        raise RefusedError(f"{output} holds other files ({foreign[0]}); it is not replaced")


def _read_table_directories(output: Path) -> set[str]:
    """Return the table directories in the output's TABLES_FILE, and the name of that file."""
    try:
        listing = json.loads((output / TABLES_FILE).read_text())
        return {TABLES_FILE, *(str(one["directory"]) for one in listing["tables"])}
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _replace_output_by_rename(stage: Path, output: Path) -> None:
    """Rename `stage` to `output`; an existing directory is first renamed aside and restored if the second rename fails.

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
    fsync_path(output.parent)


def _sync_tree(stage: Path) -> None:
    for path in [*stage.rglob("*"), stage] if stage.is_dir() else [stage]:
        fsync_path(path)


def discard_stage(stage: Path) -> None:
    """Delete a temporary output, so that nothing is published."""
    if stage.is_dir():
        shutil.rmtree(stage, ignore_errors=True)
    else:
        stage.unlink(missing_ok=True)


# --- Upload of tables ---

_SUCCESS_FILE = "_SUCCESS"
_CHUNK_BYTES = 8 * MIB


@contextlib.contextmanager
def stage_upload(url: str, *, overwrite: bool, on_step: ProgressCallback | None = None) -> Iterator[Path]:
    """Provide a temporary local path; at the end of the block, the directory there is uploaded to `url`.

    If the block raises an exception, or creates nothing, nothing is uploaded.

    Raises:
        RefusedError: `url` exists.
        UsageError: `overwrite` is set, which needs a replacement in one step.
        InputOutputError: the files cannot be written, or differ when they are read back.
    """
    if overwrite:
        raise UsageError(f"{url}: --overwrite only works for local output; name another URL")
    if "?" in url:
        raise UsageError(
            f"{url}: the URL of an output cannot have `?`; set AWS_ENDPOINT_URL and similar variables instead"
        )
    fs, place = resolve_filesystem(url)
    with translate_errors(url):
        if fs.get_file_info(place).type.name != "NotFound":
            raise RefusedError(f"{url} exists; name another output")
        if fs.type_name == "s3" and fs.get_file_info(place.partition("/")[0]).type.name == "NotFound":
            raise InputOutputError(f"{url}: there is no such bucket")
    stage = Path(place.rpartition("/")[2] or "rows")
    with name_os_errors(stage, "cannot be written"), create_work_folder() as folder:
        stage = folder / stage
        yield stage
        if stage.is_dir():
            _upload_files(stage, url, on_step)


def _upload_files(stage: Path, url: str, on_step: ProgressCallback | None) -> None:
    """Upload all files, or none if one fails."""
    fs, place = resolve_filesystem(url)
    paths = (path for path in stage.rglob("*") if path.is_file() and not path.name.startswith("."))
    files = sorted(paths, key=lambda path: (path.name == _SUCCESS_FILE, path))
    done_bytes, total = 0, sum(path.stat().st_size for path in files)
    try:
        for path in files:
            name = path.relative_to(stage).as_posix()
            with translate_errors(f"{url}/{name}", "written"):
                for size in _upload_and_yield_chunk_sizes(path, fs, f"{place}/{name}"):
                    done_bytes += size
                    if on_step is not None:
                        on_step(ProgressStep("uploading", done_bytes, total))
                if _hash_remote(fs, f"{place}/{name}") != hash_file(str(path)):
                    raise InputOutputError(f"{url}/{name}: what was read back differs from what was written")
    except BaseException:
        with contextlib.suppress(OSError):
            fs.delete_dir(place)
        raise


def _upload_and_yield_chunk_sizes(path: Path, fs: Any, target: str) -> Iterator[int]:
    """Upload one file; yield the sizes of its chunks."""
    if fs.type_name != "s3":
        fs.create_dir(target.rpartition("/")[0], recursive=True)
    with path.open("rb") as file, fs.open_output_stream(target, compression=None) as out:
        while piece := file.read(_CHUNK_BYTES):
            out.write(piece)
            yield len(piece)


def _hash_remote(fs: Any, name: str) -> str:
    with fs.open_input_file(name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
