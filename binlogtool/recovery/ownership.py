"""Check that a server that runs as the owner of the log's directory can open its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

MAX_NAMED_FILES = 3
"""Files that are named; of more the number."""


def describe_unusable_files(directory: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield a line about the files that the owner of the directory cannot read and write; nothing if it can.

    Only users and modes are checked: groups, ACLs and capabilities can allow more.
    """
    try:
        owner = os.stat(directory).st_uid
    except OSError:
        return
    unusable_paths = [path for path in paths if not _is_usable(path, owner)]
    if not unusable_paths:
        return
    names = ", ".join(os.path.basename(path) for path in unusable_paths[:MAX_NAMED_FILES])
    names += f" and {len(unusable_paths) - MAX_NAMED_FILES:,} more" if len(unusable_paths) > MAX_NAMED_FILES else ""
    yield f"not checked: a server that runs as the owner of the directory (uid {owner}) cannot read and write {names}"


def _is_usable(path: str, owner: int) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return True  # what is wrong with it is reported elsewhere
    if owner == 0:
        return True
    bits = (stat.S_IRUSR, stat.S_IWUSR) if status.st_uid == owner else (stat.S_IROTH, stat.S_IWOTH)
    return all(status.st_mode & bit for bit in bits)
