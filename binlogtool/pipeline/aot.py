"""What Java knew at the end of a job on this machine, kept for the next ones, in a folder that the user names.

Java's own ahead-of-time cache (JEP 483 and 514; Java 25 or newer): classes of Spark that need not be read, checked and
linked again. Java itself refuses one that does not fit, and goes on without.
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

ENVIRONMENT = "BINLOGTOOL_JAVA_CACHE"
"""Names the folder; without it nothing is kept."""
FIRST = 25
"""The first Java that makes such a cache in one run."""
PATIENCE_S = 300.0
"""Seconds that Java gets to write it, at the end of the job that makes it."""


class Cache(msgspec.Struct, frozen=True):
    """path: of the file; there is one for each Java and each Spark. made: it is there."""

    path: Path
    made: bool

    @property
    def options(self) -> tuple[str, ...]:
        """What Java is told."""
        return (f"-XX:AOTCache={self.path}",) if self.made else (f"-XX:AOTCacheOutput={self._new}",)

    @property
    def _new(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}")

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Waits until Java, which is ending, has written it. Where it cannot, there is none."""
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if process.wait(PATIENCE_S) == 0:
                os.replace(self._new, self.path)
        for path in (self._new, self._new.with_name(f"{self._new.name}.config")):
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def kept(java: Path, version: int, way: Sequence[str]) -> Iterator[Cache | None]:
    """The cache for this Java and the Spark of this installation; None = none is asked for, this Java has no such
    thing, or another job is making it at this moment. way: words that tell one way of starting it from another.

    Raises:
        UsageError: the folder cannot be used, or others may write to it.
    """
    named = os.environ.get(ENVIRONMENT)
    if not named or version < FIRST:
        yield None
        return
    path = _folder(Path(named)) / f"spark-{_key(java, way)}.aot"
    if path.is_file():
        yield Cache(path, made=True)
        return
    with path.with_suffix(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
        else:
            yield Cache(path, path.is_file())


def _folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise UsageError(f"{ENVIRONMENT}={folder}: {error.strerror}") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"{ENVIRONMENT}={folder}: others may write there, and Java would run what they wrote")
    return folder


def _key(java: Path, way: Sequence[str]) -> str:
    import hashlib

    import pyspark

    parts = [str(java.resolve()), str(java.stat().st_mtime_ns), pyspark.__version__, *way]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
