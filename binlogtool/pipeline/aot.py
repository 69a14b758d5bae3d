"""Cache of loaded Java classes between jobs on this machine, in a directory that the user names.

It is Java's own ahead-of-time cache (JEP 483 and 514; Java 25 or newer): Spark's classes need not be read, verified and
linked again. Java ignores a cache file that does not match and starts without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from binlogtool.errors import UsageError

CACHE_VARIABLE = "BINLOGTOOL_JAVA_CACHE"
"""Environment variable that names the cache directory; without it nothing is cached."""
MIN_CACHE_JAVA_VERSION = 25
"""The first Java version that writes such a cache in a single run."""
WRITE_TIMEOUT_S = 300.0
"""How long to wait for Java to write the cache at the end of the job that creates it."""


class JvmCache(msgspec.Struct, frozen=True):
    """Class cache file of one Java and one Spark version. exists: the file exists already."""

    path: Path
    exists: bool

    @property
    def options(self) -> tuple[str, ...]:
        """Java command line options that read or create the cache."""
        return (f"-XX:AOTCache={self.path}",) if self.exists else (f"-XX:AOTCacheOutput={self._pending_path}",)

    @property
    def _pending_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}")

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the ending Java process to write the cache, then move it into place; no cache remains if that
        fails.
        """
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if process.wait(WRITE_TIMEOUT_S) == 0:
                os.replace(self._pending_path, self.path)
        for path in (self._pending_path, self._pending_path.with_name(f"{self._pending_path.name}.config")):
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def open_jvm_cache(java: Path, version: int, launch_key: Sequence[str]) -> Iterator[JvmCache | None]:
    """Provide the class cache for this Java and the installed Spark.

    Args:
        java: the Java program.
        version: its major version.
        launch_key: texts that distinguish one way of starting Java from another; part of the file name's hash.

    Yields:
        The cache; None if none is configured, this Java is too old, or another job is creating it right now.

    Raises:
        UsageError: the directory cannot be used, or other users may write to it.
    """
    directory = os.environ.get(CACHE_VARIABLE)
    if not directory or version < MIN_CACHE_JAVA_VERSION:
        yield None
        return
    path = _prepare_cache_directory(Path(directory)) / f"spark-{_hash_cache_key(java, launch_key)}.aot"
    if path.is_file():
        yield JvmCache(path, exists=True)
        return
    with path.with_suffix(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
        else:
            yield JvmCache(path, path.is_file())


def _prepare_cache_directory(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise UsageError(f"{CACHE_VARIABLE}={folder}: {error.strerror}") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"{CACHE_VARIABLE}={folder}: others may write there, and Java would run what they wrote")
    return folder


def _hash_cache_key(java: Path, launch_key: Sequence[str]) -> str:
    import hashlib

    import pyspark

    parts = [str(java.resolve()), str(java.stat().st_mtime_ns), pyspark.__version__, *launch_key]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
