"""Upload of tables to an object store or another file system, after they were written and checked on the local disk.

Such systems cannot publish many files in one step. So `_SUCCESS` is uploaded last, the convention of table readers: a
directory without it is unfinished. What was uploaded before a failure is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from binlogtool.errors import InputOutputError, RefusedError, UsageError
from binlogtool.limits import MIB
from binlogtool.pipeline.account import ProgressCallback, ProgressStep
from binlogtool.pipeline.claims import create_work_folder
from binlogtool.pipeline.inputs import hash_file
from binlogtool.pipeline.remote import resolve_filesystem, translate_errors

_SUCCESS_FILE = "_SUCCESS"
_CHUNK_BYTES = 8 * MIB


@contextlib.contextmanager
def stage_upload(url: str, *, overwrite: bool, on_step: ProgressCallback | None = None) -> Iterator[Path]:
    """Provide a temporary local path; the directory that is there at the end of the block is uploaded to `url`.

    If the block raises, or leaves nothing there, nothing is uploaded.

    Raises:
        RefusedError: `url` exists.
        UsageError: `overwrite` is set, which needs a replacement in one step.
        InputOutputError: it cannot be written, or not read back as it was written.
    """
    if overwrite:
        raise UsageError(f"{url}: --overwrite replaces local output only, in one step; name another place")
    if "?" in url:
        raise UsageError(f"{url}: an output is named without `?`; set AWS_ENDPOINT_URL and the like instead")
    fs, place = resolve_filesystem(url)
    with translate_errors(url):
        if fs.get_file_info(place).type.name != "NotFound":
            raise RefusedError(f"{url} exists; name another output")
        if fs.type_name == "s3" and fs.get_file_info(place.partition("/")[0]).type.name == "NotFound":
            raise InputOutputError(f"{url}: there is no bucket of this name")
    stage = Path(place.rpartition("/")[2] or "rows")
    try:
        with create_work_folder() as folder:
            stage = folder / stage
            yield stage
            if stage.is_dir():
                _upload_files(stage, url, on_step)
    except OSError as error:
        raise InputOutputError(f"{stage}: cannot be written: {error.strerror or error}") from error


def _upload_files(stage: Path, url: str, on_step: ProgressCallback | None) -> None:
    """Upload every file, or none."""
    fs, place = resolve_filesystem(url)
    paths = (path for path in stage.rglob("*") if path.is_file() and not path.name.startswith("."))
    files = sorted(paths, key=lambda path: (path.name == _SUCCESS_FILE, path))
    done_bytes, total = 0, sum(path.stat().st_size for path in files)
    try:
        for path in files:
            name = path.relative_to(stage).as_posix()
            with translate_errors(f"{url}/{name}", "written"):
                for size in _copy_file(path, fs, f"{place}/{name}"):
                    done_bytes += size
                    if on_step is not None:
                        on_step(ProgressStep("uploading", done_bytes, total))
                if _hash_remote(fs, f"{place}/{name}") != hash_file(str(path)):
                    raise InputOutputError(f"{url}/{name}: what was read back is not what was written")
    except BaseException:
        with contextlib.suppress(OSError):
            fs.delete_dir(place)
        raise


def _copy_file(path: Path, fs: Any, target: str) -> Iterator[int]:
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
