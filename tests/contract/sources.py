"""The modules of the package as files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "binlogtool"


def modules() -> list[Path]:
    """Every module, the formats by way of the link."""
    return sorted(
        p for p in [*PACKAGE.rglob("*.py"), *(PACKAGE / "formats").rglob("*.py")] if "__pycache__" not in p.parts
    )
