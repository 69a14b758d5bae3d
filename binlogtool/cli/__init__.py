"""Command line: one module per command, on top of the public API."""

from __future__ import annotations

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (None = that of the process), and return its exit status."""
    from binlogtool.cli.lazy_imports_and_gc import finish_process, prepare_process

    if args is None:
        prepare_process()
    from binlogtool.cli.entry_point import run_command_line

    status = run_command_line(args)
    if args is None:
        finish_process()
    return status
