"""`binlogtool completion`: the completion script of a shell."""

from __future__ import annotations

import click

from binlogtool.cli.command import Command
from binlogtool.cli.run import Run
from binlogtool.errors import UsageError


def _completion(run: Run, shell: str) -> int:
    from click.shell_completion import get_completion_class

    from binlogtool.cli.app import build

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"there is no completion for {shell}; use bash, zsh or fish")
    with run.output(text=True, page=False) as out:
        out.line(kind(build(), {}, "binlogtool", "_BINLOGTOOL_COMPLETE").source().rstrip())
    return 0


command = Command(
    "completion",
    callback=_completion,
    params=[click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish", "powershell"]))],
    help="Print the completion script of a shell. Put its output where your shell looks for completions.",
    examples=(
        ("for bash, in this session", 'eval "$(binlogtool completion bash)"'),
        ("for fish, for good", "binlogtool completion fish > ~/.config/fish/completions/binlogtool.fish"),
    ),
)
