"""Version of this package; pyproject.toml contains the same version."""

from __future__ import annotations

__version__ = "0.1.0"
