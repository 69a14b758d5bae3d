"""Mutants that no test can notice, since they mean the same, and why. By module, then by `Mutant.name`."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {}
