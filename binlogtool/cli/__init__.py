"""The command line: one module per command over the public API."""

from __future__ import annotations

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (default: that of the process), and return its exit status."""
    from binlogtool.cli.start import begin, finish

    if args is None:
        begin()
    from binlogtool.cli.entry import run

    status = run(args)
    if args is None:
        finish()
    return status
