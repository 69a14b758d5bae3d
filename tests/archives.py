"""Unpack the archives that the tests ship."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def extract(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Unpack an archive with the filter for data, which Python before 3.11.4 does not have."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder, members)
