"""Logs in object stores and other file systems, by URL (s3://, gs://, hdfs://, file://, …): read in ranges by pyarrow.

Where S3 is, and who may read it, is told as for every S3 client: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and so
on, on the driver and on the executors; or in the URL of a file (`?endpoint_override=HOST:PORT&scheme=http`).
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

from binlogtool.errors import InputOutputError, MissingExtraError, UsageError
from binlogtool.findings import Finding, finding
from binlogtool.limits import KIB, MIB
from binlogtool.log import detect
from binlogtool.log.logset import MAX_DEPTH, MAX_ENTRIES, members_among

BLOCK = 256 * KIB
"""Bytes fetched for a small read; what is larger is fetched as it is."""

_KEPT = 8
_HASHED = 8 * MIB


class RemoteSource:
    """A file of another system. fetched: bytes that were asked of it so far."""

    def __init__(self, url: str) -> None:
        self.name = url
        self.fetched = 0
        self._fs, self._path = _system(url)
        with _told(url):
            self._info = self._fs.get_file_info(self._path)
            if not self._info.is_file:
                what = "is a directory" if self._info.type.name == "Directory" else "no such file"
                raise InputOutputError(f"{url}: {what}")
            self._file = self._fs.open_input_file(self._path)
        self.size: int | None = int(self._info.size)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fills `view` from `offset`; short only at the end of the file."""
        assert self.size is not None
        view = view[: max(0, self.size - offset)]
        if len(view) >= BLOCK:
            data = self._fetch(offset, len(view))
            view[: len(data)] = data
            return len(data)
        done = 0
        while done < len(view):
            number, skip = divmod(offset + done, BLOCK)
            data = self._block(number)[skip : skip + len(view) - done]
            if not data:
                break
            view[done : done + len(data)] = data
            done += len(data)
        return done

    def _block(self, number: int) -> bytes:
        known = self._blocks.get(number)
        if known is None:
            assert self.size is not None
            known = self._fetch(number * BLOCK, min(BLOCK, self.size - number * BLOCK))
            if len(self._blocks) >= _KEPT:
                self._blocks.popitem(last=False)
            self._blocks[number] = known
        self._blocks.move_to_end(number)
        return known

    def _fetch(self, offset: int, size: int) -> bytes:
        with _told(self.name):
            data = self._file.read_at(size, offset)
        self.fetched += len(data)
        return bytes(data)

    def skip_hole(self, offset: int) -> int:
        """Holes are not known."""
        return offset

    def changed(self) -> Finding | None:
        """Compares size and modification time with those at opening."""
        with _told(self.name):
            now = self._fs.get_file_info(self._path)
        if not now.is_file:
            return finding("changed-while-read", 0, 0, "the file was removed or renamed while it was read")
        if (now.size, now.mtime_ns) == (self._info.size, self._info.mtime_ns):
            return None
        return finding(
            "changed-while-read", min(now.size, self._info.size), 0, "the file changed while it was read",
            size_before=self._info.size, size_after=now.size,
        )  # fmt: skip

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def open_remote(url: str) -> RemoteSource:
    """The file behind a URL.

    Raises:
        InputOutputError: it cannot be opened. UsageError: there is no such kind of URL.
    """
    return RemoteSource(url)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Errors of the other system as ours, in one line."""
    try:
        yield
    except OSError as error:
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputOutputError(f"{url}: cannot be read: {text}") from error


def _system(url: str) -> tuple[Any, str]:
    try:
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise MissingExtraError("URLs need pyarrow: install it with `pip install 'binlogtool[spark]'`") from error
    try:
        fs, path = FileSystem.from_uri(_complete(url))
    except (ValueError, OSError) as error:
        raise UsageError(f"{url}: {str(error).splitlines()[0]}") from error
    return fs, path


def _complete(url: str) -> str:
    """A URL of S3 with what the environment says of the place; pyarrow does not look there."""
    place, _, query = url.partition("?")
    if not place.startswith("s3://"):
        return url
    asked = dict(parse_qsl(query))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in asked:
        scheme, _, host = endpoint.rstrip("/").rpartition("://")
        asked |= {"endpoint_override": host, "scheme": scheme or "https"}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region and "region" not in asked:
        asked["region"] = region
    return f"{place}?{urlencode(asked)}" if asked else place


def remote_files(url: str, format: str) -> list[tuple[str, str]]:
    """The files behind a URL with their formats: the file itself, or the members of the logs below a directory.

    Raises:
        InputOutputError, UnknownFormatError, UsageError.
    """
    fs, path = _system(url)
    with _told(url):
        if fs.get_file_info(path).type.name != "Directory":
            return [(url, format)]
    if "?" in url:
        raise UsageError(f"{url}: a directory is named without `?`; set AWS_ENDPOINT_URL and the like instead")
    wanted = None if format == "auto" else detect.by_name(format)
    home = url.rstrip("/")
    logs = members_among(home, _names(fs, path, url), wanted)
    return [(f"{log.home}/{name}", log.format.spec) for log in logs for name in log.names]


def _names(fs: Any, path: str, url: str) -> list[str]:
    from pyarrow.fs import FileSelector

    with _told(url):
        found = fs.get_file_info(FileSelector(path, recursive=True))
    top = path.rstrip("/") + "/"
    names = [one.path.removeprefix(top) for one in found if one.is_file]
    if len(names) > MAX_ENTRIES:
        raise InputOutputError(f"{url}: more than {MAX_ENTRIES:,} files; name them instead")
    return [name for name in sorted(names) if name.count("/") <= MAX_DEPTH]


def remote_stamp(url: str) -> tuple[int, int, int, int]:
    """What changes when a file does: size, modification time in ns."""
    fs, path = _system(url)
    with _told(url):
        info = fs.get_file_info(path)
    if not info.is_file:
        raise InputOutputError(f"{url}: cannot be read: no such file")
    return int(info.size), int(info.mtime_ns or 0), 0, 0


def remote_sha256(url: str) -> str:
    """The hash of a file's bytes, which are all fetched for it."""
    source, digest, at = RemoteSource(url), hashlib.sha256(), 0
    buffer = memoryview(bytearray(_HASHED))
    try:
        while got := source.read_at(at, buffer):
            digest.update(buffer[:got])
            at += got
    finally:
        source.close()
    return digest.hexdigest()
