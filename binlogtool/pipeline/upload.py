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
from binlogtool.pipeline.account import OnStep, Step
from binlogtool.pipeline.claims import work_folder
from binlogtool.pipeline.inputs import sha256
from binlogtool.pipeline.remote import system_of, told

_LAST = "_SUCCESS"
_PIECE = 8 * MIB


@contextlib.contextmanager
def uploaded(url: str, *, overwrite: bool, on_step: OnStep | None = None) -> Iterator[Path]:
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
    fs, place = system_of(url)
    with told(url):
        if fs.get_file_info(place).type.name != "NotFound":
            raise RefusedError(f"{url} exists; name another output")
        if fs.type_name == "s3" and fs.get_file_info(place.partition("/")[0]).type.name == "NotFound":
            raise InputOutputError(f"{url}: there is no bucket of this name")
    stage = Path(place.rpartition("/")[2] or "rows")
    try:
        with work_folder() as folder:
            stage = folder / stage
            yield stage
            if stage.is_dir():
                _upload(stage, url, on_step)
    except OSError as error:
        raise InputOutputError(f"{stage}: cannot be written: {error.strerror or error}") from error


def _upload(stage: Path, url: str, on_step: OnStep | None) -> None:
    """Upload every file, or none."""
    fs, place = system_of(url)
    found = (path for path in stage.rglob("*") if path.is_file() and not path.name.startswith("."))
    files = sorted(found, key=lambda path: (path.name == _LAST, path))
    done, total = 0, sum(path.stat().st_size for path in files)
    try:
        for path in files:
            name = path.relative_to(stage).as_posix()
            with told(f"{url}/{name}", "written"):
                for size in _copied(path, fs, f"{place}/{name}"):
                    done += size
                    if on_step is not None:
                        on_step(Step("uploading", done, total))
                if _hash(fs, f"{place}/{name}") != sha256(str(path)):
                    raise InputOutputError(f"{url}/{name}: what was read back is not what was written")
    except BaseException:
        with contextlib.suppress(OSError):
            fs.delete_dir(place)
        raise


def _copied(path: Path, fs: Any, target: str) -> Iterator[int]:
    """Upload one file; yield the sizes of its chunks."""
    if fs.type_name != "s3":
        fs.create_dir(target.rpartition("/")[0], recursive=True)
    with path.open("rb") as file, fs.open_output_stream(target, compression=None) as out:
        while piece := file.read(_PIECE):
            out.write(piece)
            yield len(piece)


def _hash(fs: Any, name: str) -> str:
    with fs.open_input_file(name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
