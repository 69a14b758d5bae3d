"""Read logs in object stores and other file systems by URL (s3://, gs://, hdfs://, file://, …), using pyarrow.

The endpoint and credentials of S3 come from the usual variables AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and so
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

from binlogtool.core.open_file import Source
from binlogtool.core.resolve_paths import MAX_DEPTH, MAX_ENTRIES, OWN_FILE_MARKER
from binlogtool.errors import InputOutputError, MissingExtraError, UsageError
from binlogtool.findings import Finding, make_finding
from binlogtool.limits import KIB, MIB

BLOCK_BYTES = 256 * KIB
"""Bytes fetched for a small read; larger reads are fetched as requested."""

_MAX_CACHED_BLOCKS = 8
_HASH_CHUNK_BYTES = 8 * MIB
_MAX_ATTEMPTS = 3
_RETRY_LIMIT_S = 20
_S3_OPTIONS = ("endpoint_override", "region", "scheme", "tls_ca_file_path")
_AWS_ERROR_PREFIX = re.compile(r"When .*?: (?=AWS Error)")
_URL_CREDENTIALS = re.compile(r"://[^/]*@")
_UNQUOTED = "/!$&'()+*,;=:@~"
"""Characters that are not quoted in the path of a URL."""


class RemoteSource(Source):
    """A file in another file system. fetched: number of bytes requested so far."""

    def __init__(self, url: str) -> None:
        self.name = url
        self.fetched = 0
        self._fs, self._path = resolve_filesystem(url)
        with translate_errors(url):
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
        if len(view) >= BLOCK_BYTES:
            data = self._fetch(offset, len(view))
            view[: len(data)] = data
            return len(data)
        done = 0
        while done < len(view):
            number, skip = divmod(offset + done, BLOCK_BYTES)
            data = self._get_block(number)[skip : skip + len(view) - done]
            if not data:
                break
            view[done : done + len(data)] = data
            done += len(data)
        return done

    def _get_block(self, number: int) -> bytes:
        data = self._blocks.get(number)
        if data is None:
            assert self.size is not None
            data = self._fetch(number * BLOCK_BYTES, min(BLOCK_BYTES, self.size - number * BLOCK_BYTES))
            if len(self._blocks) >= _MAX_CACHED_BLOCKS:
                self._blocks.popitem(last=False)
            self._blocks[number] = data
        self._blocks.move_to_end(number)
        return data

    def _fetch(self, offset: int, size: int) -> bytes:
        with translate_errors(self.name):
            data = self._file.read_at(size, offset)
        self.fetched += len(data)
        if len(data) != size:
            raise InputOutputError(f"{self.name}: cannot be read: {len(data):,} bytes received, {size:,} requested")
        return bytes(data)

    def find_change_or_cut(self) -> Finding | None:
        """Compare size and modification time with those at opening; return a finding if they differ."""
        with translate_errors(self.name):
            now = self._fs.get_file_info(self._path)
        if not now.is_file:
            return make_finding("changed-while-read", 0, 0, "the file was removed or renamed while it was read")
        if (now.size, now.mtime_ns) == (self._info.size, self._info.mtime_ns):
            return None
        return make_finding(
            "changed-while-read", min(now.size, self._info.size), 0, "the file changed while it was read",
            size_before=self._info.size, size_after=now.size,
        )  # fmt: skip

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def open_remote(url: str) -> RemoteSource:
    """Open the file that a URL names.

    Raises:
        InputOutputError: the file cannot be opened.
        UsageError: this kind of URL is not supported.
    """
    return RemoteSource(url)


@contextmanager
def translate_errors(url: str, action: str = "read") -> Iterator[None]:
    """Convert errors of the file system to InputOutputError with a one-line message.

    action: past participle of the failed action for the message.
    """
    try:
        yield
    except OSError as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputOutputError(f"{url}: cannot be {action}: {_AWS_ERROR_PREFIX.sub('', text)}") from error


def resolve_filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Raises:
        MissingExtraError: pyarrow is not installed.
        UsageError: the URL is invalid.
        InputOutputError.
    """
    try:
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise MissingExtraError("URLs need pyarrow: run `pip install '.[arrow]'` in a checkout") from error
    try:
        with translate_errors(url):
            if url.startswith("s3://"):
                return _resolve_s3(url)
            fs, path = FileSystem.from_uri(_limit_gcs_retries(url))
            return fs, path
    except ValueError as error:
        raise UsageError(f"{_URL_CREDENTIALS.sub('://', url)}: {str(error).splitlines()[0]}") from error


def _limit_gcs_retries(url: str) -> str:
    """Return a gs:// URL that limits the time of retries; pyarrow's default is 15 minutes."""
    if not url.startswith(("gs://", "gcs://")) or "retry_limit_seconds" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={_RETRY_LIMIT_S}"


def _resolve_s3(url: str) -> tuple[Any, str]:
    """Resolve an S3 URL with endpoint and region from the environment, which pyarrow does not read, and few retries."""
    from pyarrow.fs import resolve_s3_region

    location, _, query = url.removeprefix("s3://").partition("?")
    bucket, _, key = location.partition("/")
    if "@" in bucket:
        raise ValueError(
            "credentials in a URL would appear in outputs; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        )
    if not bucket:
        raise ValueError("the bucket is missing: use s3://BUCKET/KEY")
    url_options = dict(parse_qsl(query))
    if unknown := set(url_options) - set(_S3_OPTIONS):
        raise ValueError(f"{min(unknown)!r} is none of {', '.join(_S3_OPTIONS)}")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in url_options:
        scheme, _, host = endpoint.rstrip("/").rpartition("://")
        url_options |= {"endpoint_override": host, "scheme": scheme or "https"}
    region = url_options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region and "endpoint_override" not in url_options:
        region = resolve_s3_region(bucket)
    options = {**url_options, **({"region": region} if region else {})}
    return _s3_client(tuple(sorted(options.items()))), unquote(f"{bucket}/{key}").rstrip("/")


@lru_cache(maxsize=8)
def _s3_client(options: tuple[tuple[str, str], ...]) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    return S3FileSystem(retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_MAX_ATTEMPTS), **dict(options))


def list_remote_files(url: str) -> list[str] | None:
    """Return the files below a directory, relative to it and quoted for a URL, sorted; None if it is not a directory.

    Raises:
        InputOutputError: the directory cannot be listed, or has too many files.
        UsageError.
    """
    fs, path = resolve_filesystem(url)
    with translate_errors(url):
        if fs.get_file_info(path).type.name != "Directory":
            return None
    if "?" in url:
        raise UsageError(
            f"{url}: the URL of a directory cannot have `?`; set AWS_ENDPOINT_URL and similar variables instead"
        )
    from pyarrow.fs import FileSelector

    with translate_errors(url):
        entries = fs.get_file_info(FileSelector(path, recursive=True))
    top = path.rstrip("/") + "/"
    names = [one.path.removeprefix(top) for one in entries if one.is_file]
    if len(names) > MAX_ENTRIES:
        raise InputOutputError(f"{url}: more than {MAX_ENTRIES:,} files; name them instead")
    listed = (name for name in names if name.count("/") <= MAX_DEPTH and OWN_FILE_MARKER not in os.path.basename(name))
    return sorted(quote(name, _UNQUOTED) for name in listed)


def read_remote_stamp(url: str) -> tuple[int, int, int, int]:
    """Return values that change when the file changes: size, modification time in ns, 0, 0 (no inode or device)."""
    fs, path = resolve_filesystem(url)
    with translate_errors(url):
        info = fs.get_file_info(path)
    if not info.is_file:
        raise InputOutputError(f"{url}: cannot be read: no such file")
    return int(info.size), int(info.mtime_ns or 0), 0, 0


def hash_remote_file(url: str) -> str:
    """Return the SHA-256 of a file; all its bytes are fetched."""
    source, digest, offset = RemoteSource(url), hashlib.sha256(), 0
    buffer = memoryview(bytearray(_HASH_CHUNK_BYTES))
    try:
        while received := source.read_at(offset, buffer):
            digest.update(buffer[:received])
            offset += received
    finally:
        source.close()
    return digest.hexdigest()
