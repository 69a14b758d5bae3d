"""Logs in object stores and other file systems, by URL (s3://, gs://, hdfs://, file://, …): ranges read by pyarrow.

The endpoint and credentials of S3 come from the usual variables AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
so
on, on the driver and on the executors; or from the URL of a file (`?endpoint_override=HOST:PORT&scheme=http`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from binlogtool.errors import InputOutputError, MissingExtraError, UsageError
from binlogtool.findings import Finding, finding
from binlogtool.limits import KIB, MIB
from binlogtool.log.logset import MAX_DEPTH, MAX_ENTRIES, OWN_FILES

BLOCK = 256 * KIB
"""Bytes fetched for a small read; larger reads are fetched unchanged."""

_KEPT = 8
_HASHED = 8 * MIB
_TRIES = 3
_PATIENCE_S = 20
_S3_OPTIONS = ("endpoint_override", "region", "scheme", "tls_ca_file_path")
_LEADING = re.compile(r"When .*?: (?=AWS Error)")
_KEYS = re.compile(r"://[^/]*@")
_PLAIN = "/!$&'()+*,;=:@~"
"""Characters that are not quoted in the path of a URL."""


class RemoteSource:
    """A file in another file system. fetched: number of bytes requested so far."""

    def __init__(self, url: str) -> None:
        self.name = url
        self.fetched = 0
        self._fs, self._path = system_of(url)
        with told(url):
            self._info = self._fs.get_file_info(self._path)
            if not self._info.is_file:
                what = "is a directory" if self._info.type.name == "Directory" else "no such file"
                raise InputOutputError(f"{url}: {what}")
            self._file = self._fs.open_input_file(self._path)
        self.size: int | None = int(self._info.size)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def read_at(self, offset: int, view: memoryview) -> int:
        """Fill `view` from `offset`, and return the number of bytes; short only at the end of the file."""
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
        with told(self.name):
            data = self._file.read_at(size, offset)
        self.fetched += len(data)
        if len(data) != size:
            raise InputOutputError(f"{self.name}: cannot be read: {len(data):,} bytes came, {size:,} were asked for")
        return bytes(data)

    def skip_hole(self, offset: int) -> int:
        """Return `offset`: holes of remote files are unknown."""
        return offset

    def changed(self) -> Finding | None:
        """Compare size and modification time with those at opening; return a finding if they differ."""
        with told(self.name):
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
        """Close the file."""
        self._file.close()


def open_remote(url: str) -> RemoteSource:
    """Open the file behind a URL.

    Raises:
        InputOutputError: it cannot be opened.
        UsageError: this kind of URL is not supported.
    """
    return RemoteSource(url)


@contextmanager
def told(url: str, done: str = "read") -> Iterator[None]:
    """Convert errors of the file system to InputOutputError with a one-line message. done: participle for the
    message.
    """
    try:
        yield
    except OSError as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputOutputError(f"{url}: cannot be {done}: {_LEADING.sub('', text)}") from error


def system_of(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        MissingExtraError: pyarrow is not installed.
        UsageError: the URL is invalid.
        InputOutputError.
    """
    try:
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise MissingExtraError("URLs need pyarrow: install it with `pip install 'binlogtool[spark]'`") from error
    try:
        with told(url):
            if url.startswith("s3://"):
                return _s3(url)
            fs, path = FileSystem.from_uri(_patient(url))
            return fs, path
    except ValueError as error:
        raise UsageError(f"{_KEYS.sub('://', url)}: {str(error).splitlines()[0]}") from error


def _patient(url: str) -> str:
    """Limit how long Google Cloud Storage is retried; pyarrow's default is a quarter of an hour."""
    if not url.startswith(("gs://", "gcs://")) or "retry_limit_seconds" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={_PATIENCE_S}"


def _s3(url: str) -> tuple[Any, str]:
    """Resolve an S3 URL with endpoint and region from the environment, which pyarrow does not read, and few retries."""
    from pyarrow.fs import resolve_s3_region

    place, _, query = url.removeprefix("s3://").partition("?")
    server, _, key = place.partition("/")
    if "@" in server:
        raise ValueError("keys in a URL would stand in every output; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if not server:
        raise ValueError("a bucket is missing: write s3://BUCKET/KEY")
    asked = dict(parse_qsl(query))
    if unknown := set(asked) - set(_S3_OPTIONS):
        raise ValueError(f"{min(unknown)!r} is none of {', '.join(_S3_OPTIONS)}")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in asked:
        scheme, _, host = endpoint.rstrip("/").rpartition("://")
        asked |= {"endpoint_override": host, "scheme": scheme or "https"}
    region = asked.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region and "endpoint_override" not in asked:
        region = resolve_s3_region(server)
    options = {**asked, **({"region": region} if region else {})}
    return _s3_client(tuple(sorted(options.items()))), unquote(f"{server}/{key}").rstrip("/")


@lru_cache(maxsize=8)
def _s3_client(options: tuple[tuple[str, str], ...]) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    return S3FileSystem(retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_TRIES), **dict(options))


def remote_names(url: str) -> list[str] | None:
    """Return the files below a directory, relative to it and quoted for a URL, sorted; None if it is not a directory.

    Raises:
        InputOutputError: it cannot be listed, or has too many files.
        UsageError.
    """
    fs, path = system_of(url)
    with told(url):
        if fs.get_file_info(path).type.name != "Directory":
            return None
    if "?" in url:
        raise UsageError(f"{url}: a directory is named without `?`; set AWS_ENDPOINT_URL and the like instead")
    from pyarrow.fs import FileSelector

    with told(url):
        found = fs.get_file_info(FileSelector(path, recursive=True))
    top = path.rstrip("/") + "/"
    names = [one.path.removeprefix(top) for one in found if one.is_file]
    if len(names) > MAX_ENTRIES:
        raise InputOutputError(f"{url}: more than {MAX_ENTRIES:,} files; name them instead")
    near = (name for name in names if name.count("/") <= MAX_DEPTH and OWN_FILES not in os.path.basename(name))
    return sorted(quote(name, _PLAIN) for name in near)


def remote_stamp(url: str) -> tuple[int, int, int, int]:
    """Return values that change when the file does: size, modification time in ns, 0, 0."""
    fs, path = system_of(url)
    with told(url):
        info = fs.get_file_info(path)
    if not info.is_file:
        raise InputOutputError(f"{url}: cannot be read: no such file")
    return int(info.size), int(info.mtime_ns or 0), 0, 0


def remote_sha256(url: str) -> str:
    """Return the SHA-256 of a file; all its bytes are fetched."""
    source, digest, at = RemoteSource(url), hashlib.sha256(), 0
    buffer = memoryview(bytearray(_HASHED))
    try:
        while got := source.read_at(at, buffer):
            digest.update(buffer[:got])
            at += got
    finally:
        source.close()
    return digest.hexdigest()
