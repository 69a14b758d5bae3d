"""`python -m tests.fuzz.guided FORMAT`: inputs chosen by the code that they reach (atheris, `pip install atheris`)."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from tests.fuzz.seeds import TARGETS

_PATIENCE = 120
"""Seconds of an input, by the clock: the machine may be busy. What takes long is found by `python -m tests.fuzz`."""


def main() -> int:
    """Run until the time is over or an input breaks a promise; libFuzzer saves that input as a file `crash-…`."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("format", choices=[target for target in TARGETS if target != "mariadb-redo"])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument(
        "--longest", type=int, default=4096, help="bytes of an input (default 4096, or the shortest file)"
    )
    arguments = parser.parse_args()
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        parser.error("atheris is not installed (pip install atheris)")
    with atheris.instrument_imports(include=["binlogtool"], enable_loader_override=False):
        from tests.fuzz.__main__ import CORPUS
        from tests.fuzz.run import scratch_folder
        from tests.fuzz.seeds import seeds
        from tests.harness.engine import opinion

        candidates = sorted(
            (seed for seed in seeds(CORPUS, arguments.format) if not seed.hints.keyfile),
            key=lambda seed: len(seed.data),
        )
        longest = max(arguments.longest, len(candidates[0].data))
        inputs = [seed for seed in candidates if len(seed.data) <= longest]
        name, format_ = inputs[0].name, inputs[0].format
        for seed in inputs:  # loads code that would count as slow later
            opinion(format_, name, seed.data)
    with scratch_folder() as scratch:
        for number, seed in enumerate(inputs):
            (scratch / str(number)).write_bytes(seed.data)
        options = [
            f"-max_total_time={arguments.seconds}",
            f"-max_len={longest}",
            f"-timeout={_PATIENCE}",
            "-rss_limit_mb=3000",
        ]
        atheris.Setup([sys.argv[0], *options, str(scratch)], lambda data: opinion(format_, name, data))
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
