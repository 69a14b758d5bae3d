"""The modules of the package as files, parsed once in a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.package_figures.modules import ROOT, Code, tree

__all__ = ["FOLDERS", "ROOT", "each_folder", "modules", "modules_of", "name_of", "tree"]

_CODE = Code(ROOT)
name_of = _CODE.name_of


def modules() -> list[Path]:
    """Every module, the formats by way of the link."""
    return _CODE.modules


def modules_of(folder: Path) -> list[Path]:
    """Those that lie in a folder itself."""
    return [path for path in modules() if path.parent == folder]


FOLDERS = sorted({path.parent for path in modules()})
each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
"""One test for all modules of a folder: a test for each of them costs more than what it does."""
