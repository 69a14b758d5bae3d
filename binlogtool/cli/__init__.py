"""The command line: one thin file per command over the public library."""

from __future__ import annotations

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command line (default: that of the process) and returns its exit status."""
    if args is None:
        from binlogtool.cli.start import begin

        begin()
    from binlogtool.cli.run import run

    return run(args)
