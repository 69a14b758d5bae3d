"""`binlogtool completion`: print the completion script of a shell; Bash's completion protocol."""

from __future__ import annotations

import os
import shlex
from itertools import pairwise

import click
from click.shell_completion import BashComplete, add_completion_class, split_arg_string

from binlogtool.cli.click_command_tree import Command, CommandRun
from binlogtool.errors import UsageError


class BashCompletion(BashComplete):
    """Bash completion for values with `=`: Bash splits words at `=`, expects only the part after it, and must not
    append a space to an incomplete value.
    """

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)",
        "COMPREPLY+=(\"$value\")\n        elif [[ $type == 'open' ]]; then\n"
        '            COMPREPLY+=("$value")\n            compopt -o nospace',
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the incomplete word, and that word, rejoined where Bash split them at `=`."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        position = int(os.environ["COMP_CWORD"])
        words = words[: position + 1] if position < len(words) else [*words, ""]
        joined = words[:1]
        for previous, word in pairwise(words):
            if len(joined) > 1 and (word == "=" or previous == "="):
                joined[-1] += word
            else:
                joined.append(word)
        return joined[1:-1], joined[-1]

    def complete(self) -> str:
        """Return the completions, one per line."""
        args, incomplete = self.get_completion_args()
        completions = [(item.type, item.value) for item in self.get_completions(args, incomplete)]
        is_after_equals = "=" in incomplete and not _is_inside_quotes(os.environ["COMP_WORDS"])
        return "\n".join(
            _format_completion(kind, _strip_before_equals(value) if is_after_equals else value)
            for kind, value in completions
        )


def _is_inside_quotes(line: str) -> bool:
    """Return True if the line ends inside a quoted word, which Bash does not split at `=`."""
    try:
        shlex.split(line)
    except ValueError:
        return True
    return False


def _strip_before_equals(value: str) -> str:
    """Return the part of a value after the `=`, as the line already contains the rest."""
    return value if value.endswith("=") else value.rpartition("=")[2]


def _format_completion(kind: str, value: str) -> str:
    is_incomplete = kind == "plain" and value.endswith(("=", "."))
    return f"{'open' if is_incomplete else kind},{value}"


add_completion_class(BashCompletion)


def _run_completion(run: CommandRun, shell: str) -> int:
    from click.shell_completion import get_completion_class

    from binlogtool.cli.click_command_tree import build_command_group

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"there is no completion for {shell}; use bash, zsh or fish")
    with run.open_output(text=True, page=False) as out:
        out.write_line(kind(build_command_group(), {}, "binlogtool", "_BINLOGTOOL_COMPLETE").source().rstrip())
    return 0


command = Command(
    "completion",
    callback=_run_completion,
    outputs=(),
    params=[click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish", "powershell"]))],
    help="Print the completion script of a shell. Save it where your shell looks for completions.",
    examples=(
        ("for bash, in this session", 'eval "$(binlogtool completion bash)"'),
        ("for fish, permanently", "binlogtool completion fish > ~/.config/fish/completions/binlogtool.fish"),
    ),
)
