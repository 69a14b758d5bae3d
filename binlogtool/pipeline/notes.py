"""Findings that are not damage, passed from the tasks of a job to its manifest, as no row represents them.

A task can only reach the driver through files in the output, so it writes them there, under a name that a retry of the
same task overwrites.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from binlogtool.findings import Finding
from binlogtool.log.body_json import finding_to_value
from binlogtool.pipeline.account import FindingTally

FOLDER = "_notes"
"""Directory in the output that is removed when it is complete."""


def write_notes(folder: str, file: str, task: str, notes: Sequence[Finding]) -> None:
    """Write the notes of one task about a file. task: text that identifies the task.

    Raises:
        OSError: they cannot be written.
    """
    os.makedirs(folder, exist_ok=True)
    name = hashlib.sha256(f"{file}\0{task}".encode(errors="surrogateescape")).hexdigest()
    path = Path(folder) / name
    pending = path.with_name(f"{name}.{os.getpid()}")
    pending.write_text(json.dumps([file, [dict(finding_to_value(one)) for one in notes]]))
    pending.replace(path)


def collect_notes(folder: Path, finding_tally: FindingTally) -> None:
    """Add all notes that tasks wrote to a tally, and remove them."""
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        file, notes = json.loads(path.read_text())
        for note in notes:
            finding_tally.add(file, note, damage=False)
    shutil.rmtree(folder, ignore_errors=True)
