"""The modules of the package as files, parsed once in a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "binlogtool"


@cache
def modules() -> list[Path]:
    """Every module, the formats by way of the link."""
    return sorted(
        p for p in [*PACKAGE.rglob("*.py"), *(PACKAGE / "formats").rglob("*.py")] if "__pycache__" not in p.parts
    )


def name_of(path: Path) -> str:
    """What a module is imported as."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    """What a module says."""
    return ast.parse(path.read_text("utf-8"))


def modules_of(folder: Path) -> list[Path]:
    """Those that lie in a folder itself."""
    return [path for path in modules() if path.parent == folder]


FOLDERS = sorted({path.parent for path in modules()})
each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
"""One test for all modules of a folder: a test for each of them costs more than what it does."""
