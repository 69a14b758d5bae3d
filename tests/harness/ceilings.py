"""Processes whose highest memory is told, and the logs whose reading must stay below a ceiling."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

FOUND = Path(os.environ.get("BINLOGTOOL_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus")) / "found"
MIB = 1 << 20
SLACK = 64 * MIB
STATEMENT = "mcomp.000001"
"""204 KB that hold one statement of 200 MiB."""
STARTER = """
import json, resource, subprocess, sys
space = int(sys.argv[1])
bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (space, space)) if space > 0 else None
code = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, preexec_fn=bound).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_maxrss, used.ru_utime + used.ru_stime]))
"""
"""A child's peak is never below that of the process that it was forked from: so that one has to be small."""


def unpacked(name: str, folder: Path) -> Path:
    made = folder / name
    made.write_bytes(gzip.decompress((FOUND / "bounds" / f"{name}.gz").read_bytes()))
    return made


def run(
    folder: Path, *words: str, address_space: int | None = None, backend: str = "python"
) -> tuple[int, int, float, str]:
    """Status, peak bytes, seconds of CPU and the diagnostics of one process."""

    command = [sys.executable, "-m", "binlogtool", "--backend", backend, *words]
    starter = [sys.executable, "-c", STARTER, str(address_space or -1), *command]
    done = subprocess.run(starter, capture_output=True, text=True, check=True)
    code, peak, seconds = json.loads(done.stdout)
    return code, peak * 1024, seconds, done.stderr
