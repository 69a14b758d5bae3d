"""Folders as they were."""

from __future__ import annotations

import hashlib
from pathlib import Path


def hashes(folder: Path) -> dict[str, str]:
    """Every regular file that is no file of a repair."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".binlogtool-" not in path.name
    }


def own_copy(source: Path, target: Path) -> Path:
    """A directory, or a file in a directory of its own, that can be written."""
    if source.is_dir():
        target.mkdir()
        for path in source.iterdir():
            if path.is_file() and path.suffix != ".gz":
                (target / path.name).write_bytes(path.read_bytes())
        return target
    target.mkdir()
    (target / source.name).write_bytes(source.read_bytes())
    return target / source.name
