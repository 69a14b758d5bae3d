"""The configuration file: defaults of options, in TOML. Options in FORBIDDEN cannot be set there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from binlogtool.errors import InputOutputError, UsageError

if TYPE_CHECKING:
    import click

COMMAND_LINE_ONLY = frozenset({"apply", "yes", "allow_discard_valid"})
"""Options that can only be given on the command line, not in the environment or a file."""


def user_config_path() -> str:
    """Return the path of the user's configuration file; it need not exist."""
    path = os.environ.get("BINLOGTOOL_CONFIG")
    if path:
        return path
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "binlogtool", "config.toml")


def load_config(path: str | None) -> dict[str, Any]:
    """Load the options of the given file, or of the user's file if it exists.

    Raises:
        InputOutputError: the given file cannot be read.
        UsageError: it is not valid TOML, or sets an option that cannot be set there.
    """
    name = path or user_config_path()
    must_exist = bool(path or os.environ.get("BINLOGTOOL_CONFIG"))
    try:
        with open(name, "rb") as file:
            text = file.read()
    except OSError as error:
        if must_exist:
            raise InputOutputError(f"{name}: {error.strerror}") from None
        return {}
    return _parse_config(text, name)


def _parse_config(text: bytes, name: str) -> dict[str, Any]:
    import tomllib

    try:
        values = tomllib.loads(text.decode("utf-8"))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    except RecursionError:
        raise UsageError(f"{name}: is nested too deeply for a configuration file") from None
    table = _to_option_names({key: value for key, value in values.items() if not isinstance(value, dict)})
    commands = {
        key.replace("_", "-"): _to_option_names(value) for key, value in values.items() if isinstance(value, dict)
    }
    for options in (table, *commands.values()):
        for key in COMMAND_LINE_ONLY & options.keys():
            raise UsageError(f"{name}: --{key.replace('_', '-')} can only be given on the command line")
    return {**table, **commands}


def _to_option_names(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items()}


def find_config_options(args: Sequence[str]) -> tuple[str | None, bool]:
    """Return the file that --config names, and True if --no-config is given; before any other option is parsed."""
    path, is_disabled = None, False
    for position, word in enumerate(args):
        if word == "--":
            break
        is_disabled = is_disabled or word == "--no-config"
        if word == "--config" and position + 1 < len(args):
            path = args[position + 1]
        elif word.startswith("--config="):
            path = word.partition("=")[2]
    return path, is_disabled


def check_option_names(table: Mapping[str, Any], command: str, params: Iterable[click.Parameter]) -> None:
    """Check that the command has these options, and that their values have a possible type.

    Raises:
        UsageError: an option is unknown, or a value has a wrong type.
    """
    params_by_name = {param.name: param for param in params}
    for key, value in table.items():
        option = f"--{key.replace('_', '-')}"
        if key not in params_by_name:
            raise UsageError(f"configuration: {command} has no option {option}")
        is_multiple = isinstance(value, list) and getattr(params_by_name[key], "multiple", False)
        if not all(isinstance(one, (str, int, float)) for one in (value if is_multiple else [value])):
            form = "text, a number, true or false"
            raise UsageError(f"configuration: {option}: write {form}{', or a list of them' if is_multiple else ''}")


def check_table_names(tables: Iterable[str], commands: Iterable[str]) -> None:
    """Check that every table is named like a command.

    Raises:
        UsageError: one is not.
    """
    for name in set(tables) - set(commands):
        raise UsageError(f"configuration: [{name}] is not a command; options stand before the first table")
