"""A repair as a value: immutable, serialisable, bound to exact bytes (JSON shape binlogtool/plan/1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What would be done to one file. action: none, truncate, zero-fill, rewrite or remove."""

    path: str
    size: int
    action: str
    durable_end: int | None
    cut_bytes: int
    cut_valid_records: int
    proof: Mapping[str, Any]
    sha256_kept: str | None
    sha256_cut: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All files of one repair. refused: a safety rule forbids it; reasons say why (also the harmless ones)."""

    format: str
    refused: bool
    reasons: tuple[str, ...]
    files: tuple[FilePlan, ...]
