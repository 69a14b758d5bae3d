"""Modules of the standard library that a process of the program's own loads when they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
from threading import Thread
from binlogtool.cli.lazy_imports_and_gc import LazyModule, prepare_process
prepare_process()
import inspect, pickle, textwrap
late = [name for name in ("inspect", "pickle", "textwrap") if "__ran__" not in vars(sys.modules[name])]
print(*late, "dis" in sys.modules)
found = []
def use():
    found.append((inspect.cleandoc("  a"), pickle.loads(pickle.dumps([1])), textwrap.dedent(" b")))
threads = [Thread(target=use) for _ in range(16)]
for one in threads: one.start()
for one in threads: one.join()
print(len(found), found[0], all(one == found[0] for one in found), "dis" in sys.modules)
print(hasattr(inspect, "no_such_name"), type(inspect) is LazyModule, hasattr(sys.modules["pdb"], "__path__"))
"""


def test_a_late_module_runs_when_it_is_used_for_the_first_time_by_many_threads_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "inspect pickle textwrap False",
        "16 ('a', [1], 'b') True True",
        "False True False",
    ]
