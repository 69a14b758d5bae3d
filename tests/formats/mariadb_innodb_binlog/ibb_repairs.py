"""Damaged .ibb logs and what repair plans for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.format_api.format import Hints
from binlogtool.repair.plan_types import RepairPlan, RepairPolicy, RepairResult
from tests.formats.mariadb_innodb_binlog import ibb_logs as logs

PLAIN, DISCARD = RepairPolicy(), RepairPolicy(allow_discard_valid=True)


def reading(redo: Path | None = None) -> dict[str, Any]:
    hints = None if redo is None else Hints(redo=str(redo))
    return {"format": logs.FORMAT, "backend": "python", "hints": hints}


def planned(path: Path, redo: Path | None = None, asked: RepairPolicy = PLAIN) -> RepairPlan:
    return binlogtool.plan_truncate(path, policy=asked, **reading(redo))


def repaired(path: Path, redo: Path | None = None, asked: RepairPolicy = PLAIN) -> RepairResult:
    return binlogtool.apply_plan(planned(path, redo, asked), **reading(redo))


def case_of(corpus: Path, folder: Path, index: int) -> tuple[dict[str, Any], Path, Path]:
    case = logs.manifest(corpus)["crash_cases"][index]
    for number, path in enumerate(sorted((made := logs.crashed(corpus, folder, case))[0].iterdir())):
        path.chmod(0o640)
        os.utime(path, ns=(10**18, 10**18 + number))
    return case, *made
