"""Findings that are no damage, on their way from the tasks of a job to its manifest: no row stands for them.

A task has no other way back to the driver than the files of the output: so it puts them beside those, under a name that
a second try of the same task writes again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from binlogtool.findings import Finding
from binlogtool.log.body_json import finding_json
from binlogtool.pipeline.account import Account

FOLDER = "_notes"
"""In the output until it is complete."""


def put(folder: str, file: str, task: str, notes: Sequence[Finding]) -> None:
    """Keeps the notes of one task about a file. task: tells it from other tasks.

    Raises:
        OSError: they cannot be written.
    """
    os.makedirs(folder, exist_ok=True)
    name = hashlib.sha256(f"{file}\0{task}".encode(errors="surrogateescape")).hexdigest()
    path = Path(folder) / name
    pending = path.with_name(f"{name}.{os.getpid()}")
    pending.write_text(json.dumps([file, [dict(finding_json(one)) for one in notes]]))
    pending.replace(path)


def take(folder: Path, account: Account) -> None:
    """Books all notes that were put, and removes them."""
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        file, notes = json.loads(path.read_text())
        for one in notes:
            account.add(file, one, damage=False)
    shutil.rmtree(folder, ignore_errors=True)
