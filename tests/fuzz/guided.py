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
    """Runs until the time is over or an input breaks a promise, which libFuzzer then keeps as a file `crash-…`."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("format", choices=[one for one in TARGETS if one != "mariadb-redo"])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument(
        "--longest", type=int, default=4096, help="bytes of an input (default 4096, or the shortest file)"
    )
    asked = parser.parse_args()
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        parser.error("atheris is not installed (pip install atheris)")
    with atheris.instrument_imports(include=["binlogtool"], enable_loader_override=False):
        from tests.fuzz.__main__ import CORPUS
        from tests.fuzz.run import scratch_folder
        from tests.fuzz.seeds import seeds
        from tests.harness.engine import opinion

        known = sorted(
            (one for one in seeds(CORPUS, asked.format) if not one.hints.keyfile), key=lambda one: len(one.data)
        )
        longest = max(asked.longest, len(known[0].data))
        found = [one for one in known if len(one.data) <= longest]
        name, format_ = found[0].name, found[0].format
        for one in found:  # what is only loaded now counts, too, and is not waited for later
            opinion(format_, name, one.data)
    with scratch_folder() as scratch:
        for number, one in enumerate(found):
            (scratch / str(number)).write_bytes(one.data)
        options = [
            f"-max_total_time={asked.seconds}",
            f"-max_len={longest}",
            f"-timeout={_PATIENCE}",
            "-rss_limit_mb=3000",
        ]
        atheris.Setup([sys.argv[0], *options, str(scratch)], lambda data: opinion(format_, name, data))
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
