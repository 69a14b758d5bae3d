"""The command line: one thin file per command over the public library."""

from __future__ import annotations

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command line (default: that of the process) and returns its exit status."""
    from binlogtool.cli.start import begin, finish

    if args is None:
        begin()
    from binlogtool.cli.entry import run

    status = run(args)
    if args is None:
        finish()
    return status
