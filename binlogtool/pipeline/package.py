"""Zip of this package for the executors of a cluster, where it need not be installed."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

_ENTRY_TIME = (2020, 1, 1, 0, 0, 0)
_EXCLUDED_FOLDERS = ("__pycache__",)


def write_package_zip(target: Path) -> Path:
    """Write the package with its formats to `target`, and return that path; the same files give the same bytes."""
    root = Path(__file__).parents[1]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _list_files(root):
            entry = zipfile.ZipInfo(str(path.relative_to(root.parent)), _ENTRY_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return target


def make_module_paths_absolute() -> None:
    """Make the module search path absolute on an executor, so that changing the directory does not break imports.

    Spark names the zip by a relative path.
    """
    sys.path[:] = [os.path.abspath(one) if one else one for one in sys.path]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "binlogtool":
            continue
        if hasattr(module, "__path__"):
            module.__path__ = [os.path.abspath(one) for one in module.__path__]
        loader = getattr(module.__spec__, "loader", None)
        if isinstance(loader, zipimporter) and module.__file__:
            module.__file__ = os.path.abspath(module.__file__)
            loader.archive = os.path.abspath(loader.archive)


def _list_files(root: Path) -> Iterator[Path]:
    """Yield the files in a fixed order; the link `formats` of a source tree is followed, and forms no cycle."""
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in _EXCLUDED_FOLDERS)
        yield from (Path(folder) / name for name in sorted(names) if not name.endswith(".pyc"))
