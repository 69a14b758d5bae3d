"""Every log of a corpus that is small enough to be read more than once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from binlogtool.core.open_file import open_file
from binlogtool.errors import UnknownFormatError
from binlogtool.format_api.format import Format
from binlogtool.limits import KIB, Limits

LONGEST = 256 * KIB


def of_format(path: Path) -> Format | None:
    """The format of a small log file, None for anything else."""
    if not path.is_file() or path.stat().st_size > LONGEST or not path.stat().st_size:
        return None
    if {"oracle", "make"} & set(path.parts) or path.suffix in (".md", ".json", ".py", ".sql", ".txt", ".gz"):
        return None
    try:
        file = open_file(str(path), path.name, None, Limits())
    except UnknownFormatError:
        return None
    file.source.close()
    return file.format


def logs(root: Path) -> Iterator[tuple[Path, Format]]:
    """Every small log below a folder."""
    for path in sorted(root.rglob("*")):
        format = of_format(path)
        if format is not None:
            yield path, format
