"""Reading of the files that supply what a log does not contain; each is read once, up to a size limit."""

from __future__ import annotations

import os

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.formats.detecting import Hints
from binlogtool.limits import KIB, MIB

Path = str | os.PathLike[str]

MAX_SCHEMA_BYTES = 64 * MIB
MAX_KEYFILE_BYTES = 16 * MIB
"""A keyring; MariaDB's key files have at most 1 MiB."""
MAX_SECRET_BYTES = 4 * KIB


def read_hints(
    *,
    schema: Path | None,
    keyfile: Path | None,
    keyfile_secret: Path | None,
    level: str | None = None,
    redo: Path | None = None,
) -> Hints:
    """Read the files of `binlogtool.read_hints`.

    Raises:
        InputOutputError: a file cannot be read.
        UsageError: a file is larger than such a file can be.
    """
    statements = _read_limited(
        schema, MAX_SCHEMA_BYTES, "for CREATE TABLE statements (`mysqldump --no-data` writes them)"
    )
    return Hints(
        keyfile=_read_limited(keyfile, MAX_KEYFILE_BYTES, "for a key file"),
        keyfile_secret=_read_limited(keyfile_secret, MAX_SECRET_BYTES, "for the secret of a key file"),
        schema=None if statements is None else statements.decode("utf-8", "backslashreplace"),
        level=level,
        redo=None if redo is None else os.fspath(redo),
    )


def _read_limited(path: Path | None, max_bytes: int, purpose: str) -> bytes | None:
    if path is None:
        return None
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InputOutputError(f"{name}: {error.strerror}") from None
    if len(data) > max_bytes:
        raise UsageError(f"{name}: more than {max_bytes:,} bytes, too large {purpose}")
    return data
