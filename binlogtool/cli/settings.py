"""Values of the global options and of the configuration file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from binlogtool.errors import InputOutputError, UsageError, suggest_names
from binlogtool.limits import Limits

# --- The configuration file ---

COMMAND_LINE_ONLY = frozenset({"apply", "yes", "allow_discard_valid"})
"""Options that can only be given on the command line, not in the environment or a file."""


def user_config_path() -> str:
    """Return the path of the user's configuration file, which may not exist."""
    path = os.environ.get("BINLOGTOOL_CONFIG")
    if path:
        return path
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "binlogtool", "config.toml")


def load_config(path: str | None) -> dict[str, Any]:
    """Load the options of the given file, or of the user's file if it exists.

    Raises:
        InputOutputError: the given file cannot be read.
        UsageError: the file is not valid TOML, or sets an option that a file cannot set.
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
        raise UsageError(f"{name}: is nested too deeply") from None
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
    """Return the file that --config names (None = not given), and True if --no-config is given, before parsing."""
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


def find_display_settings(args: Sequence[str]) -> GlobalSettings:
    """Return the settings for colour and paging from a command line that is not parsed because it asks for help."""
    color = "auto"
    for position, word in enumerate(args):
        if word == "--color" and position + 1 < len(args):
            color = args[position + 1]
        elif word.startswith("--color="):
            color = word.partition("=")[2]
    return GlobalSettings(color=color, pager="--no-pager" not in args)


def check_option_names(table: Mapping[str, Any], command: str, params: Iterable[click.Parameter]) -> None:
    """Check that the command has these options, and that their values have a possible type.

    Raises:
        UsageError: an option is unknown, or a value has a wrong type.
    """
    params_by_name = {param.name: param for param in params}
    for key, value in table.items():
        option = f"--{key.replace('_', '-')}"
        if key not in params_by_name:
            suggestion = suggest_names(
                key.replace("_", "-"), (name.replace("_", "-") for name in params_by_name if name)
            )
            raise UsageError(f"configuration: {command} has no option {option}{suggestion}")
        is_multiple = isinstance(value, list) and getattr(params_by_name[key], "multiple", False)
        if not all(isinstance(one, (str, int, float)) for one in (value if is_multiple else [value])):
            form = "text, a number, true or false"
            raise UsageError(f"configuration: {option}: write {form}{', or a list of them' if is_multiple else ''}")


def check_table_names(tables: Iterable[str], commands: Iterable[str]) -> None:
    """Check that every table of the configuration file has the name of a command.

    Raises:
        UsageError: a table has another name.
    """
    for name in [name for name in tables if name not in commands]:
        suggestion = suggest_names(name, commands)
        raise UsageError(
            f"configuration: [{name}] is not a command; global options must be before the first table{suggestion}"
        )


# --- Values of the global options ---

_SOURCE_PRECEDENCE = {
    ParameterSource.COMMANDLINE: 0,
    ParameterSource.PROMPT: 0,
    ParameterSource.ENVIRONMENT: 1,
    ParameterSource.DEFAULT_MAP: 2,
    ParameterSource.DEFAULT: 3,
}


class GlobalSettings(msgspec.Struct, frozen=True):
    """The global options. verbosity: -v counts up, -q counts down. timeout: seconds. max: fields of `Limits`."""

    format: str = "auto"
    output_format: str | None = None
    output: str | None = None
    overwrite: bool = False
    color: str = "auto"
    pager: bool = True
    ascii: bool = False
    progress: str = "auto"
    verbosity: int = 0
    max_memory: int | None = None
    max: tuple[tuple[str, int], ...] = ()
    timeout: float | None = None
    jobs: int = 1
    backend: str = "auto"
    debug: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> GlobalSettings:
        """Build settings from the merged values of the global options."""
        plain = {name: values[name] for name in cls.__struct_fields__ if values.get(name) is not None}
        return cls(**plain, verbosity=values.get("verbose", 0) - values.get("quiet", 0))

    @property
    def limits(self) -> Limits:
        """Limits for the library."""
        values = {name: value for name in ("max_memory", "timeout") if (value := getattr(self, name)) is not None}
        return Limits(**values, **dict(self.max))

    def choose_output_format(self, choices: Sequence[str]) -> str:
        """Return the output format; the first choice is the default.

        Raises:
            UsageError: this command has no such output.
        """
        if self.output_format is None:
            return choices[0]
        if self.output_format not in choices:
            suggestion = suggest_names(self.output_format, choices)
            raise UsageError(f"output format {self.output_format!r}: this command has {', '.join(choices)}{suggestion}")
        return self.output_format


def merge_global_values(context: click.Context, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of the global options: command line before environment before file, command before group."""
    outer = context.parent or context
    return {
        name: (context if _source_rank(context, name) <= _source_rank(outer, name) else outer).params.get(name)
        for name in names
    }


def _source_rank(context: click.Context, name: str) -> int:
    source = context.get_parameter_source(name)
    return 9 if source is None else _SOURCE_PRECEDENCE.get(source, 9)
