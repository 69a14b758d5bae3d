"""`python -m tests.fuzz.guided FORMAT`: inputs chosen by the code that they reach (atheris, `pip install atheris`)."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from tests.fuzz.seeds import TARGETS


def main() -> int:
    """Runs until the time is over or an input breaks a promise, which libFuzzer then keeps as a file `crash-…`."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("format", choices=[one for one in TARGETS if one != "mariadb-redo"])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--longest", type=int, default=4096, help="bytes of an input (default 4096)")
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

    found = [one for one in seeds(CORPUS, asked.format) if len(one.data) <= asked.longest and not one.hints.keyfile]
    if not found:
        parser.error(f"no file of {asked.format} has at most {asked.longest} bytes; see --longest")
    name, format_ = found[0].name, found[0].format
    with scratch_folder() as scratch:
        for number, one in enumerate(found):
            (scratch / str(number)).write_bytes(one.data)
        options = [f"-max_total_time={asked.seconds}", f"-max_len={asked.longest}", "-timeout=20", "-rss_limit_mb=3000"]
        atheris.Setup([sys.argv[0], *options, str(scratch)], lambda data: opinion(format_, name, data))
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
