"""Unpack the compressed files of a log into a temporary directory, for readers that need any offset of any file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from binlogtool.core.open_file import base_name, find_file_method, is_url, open_source
from binlogtool.core.progress import strip_compressed_suffix
from binlogtool.core.resolve_paths import LogGroup
from binlogtool.errors import InputOutputError
from binlogtool.limits import MIB

_ZEROS = bytes(MIB)


class UnpackedLog(NamedTuple):
    """A log whose compressed files are unpacked.

    stored_paths: path of an unpacked file -> path of the compressed file. damaged: member that could not be unpacked
    completely, and remains compressed -> why.
    """

    group: LogGroup
    stored_paths: Mapping[str, str] = MappingProxyType({})
    damaged: Mapping[str, str] = MappingProxyType({})

    def restore_path(self, path: str) -> str:
        """Return the path of the compressed file in place of that of its unpacked file; other paths unchanged."""
        return self.stored_paths.get(path, path)


@contextmanager
def unpack_members(group: LogGroup) -> Iterator[UnpackedLog]:
    """Return a context manager with the log, whose compressed files are unpacked until its end.

    Raises:
        InputOutputError: a file cannot be read, or the temporary directory cannot be written.
    """
    is_single = not group.is_set and not is_url(group.path) and find_file_method(group.path) is not None
    if not group.compressed and not is_single:
        yield UnpackedLog(group)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="binlogtool-unpacked-") as directory:
        yield _unpack_file(group, directory) if is_single else _unpack_set(group, directory)


def _unpack_file(group: LogGroup, directory: str) -> UnpackedLog:
    target = os.path.join(directory, strip_compressed_suffix(base_name(group.path)))
    failure = _unpack(group.path, target)
    if failure is not None:
        return UnpackedLog(group, damaged={group.path: failure})
    return UnpackedLog(replace(group, path=target, names=(target,)), {target: group.path})


def _unpack_set(group: LogGroup, directory: str) -> UnpackedLog:
    unpacked, damaged = dict[str, str](), dict[str, str]()
    for name in group.compressed:
        target = os.path.join(directory, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if (failure := _unpack(group.member_path(name), target)) is None:
            unpacked[name] = target
        else:
            damaged[name] = failure
    if group.format is not None and group.format.reading.reads_siblings:
        for name in {*group.names} - {*group.compressed}:
            _copy(group.member_path(name), os.path.join(directory, name))
    stored_paths = {target: group.member_path(name) for name, target in unpacked.items()}
    return UnpackedLog(replace(group, compressed={**group.compressed, **unpacked}), stored_paths, damaged)


def _unpack(path: str, target: str) -> str | None:
    """Unpack a file; return None, or why it could not be unpacked completely (then there is no target)."""
    source = open_source(path)
    try:
        with open(target, "xb") as file:
            offset, buffer = 0, bytearray(MIB)
            while size := source.read_at(offset, memoryview(buffer)):
                offset += size
                if buffer[:size] == _ZEROS[:size]:
                    file.seek(size, os.SEEK_CUR)
                else:
                    file.write(memoryview(buffer)[:size])
            file.truncate(offset)
        failure = source.find_change()
    except OSError as error:
        raise _make_write_error(path, error) from error
    finally:
        source.close()
    if failure is None:
        return None
    os.unlink(target)
    return failure.message


def _copy(path: str, target: str) -> None:
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        raise _make_write_error(path, error) from error


def _make_write_error(path: str, error: OSError) -> InputOutputError:
    import tempfile

    text = f"{path}: cannot be unpacked in {tempfile.gettempdir()}: {error.strerror}"
    return InputOutputError(f"{text}; name another directory with TMPDIR, or unpack the file yourself")
