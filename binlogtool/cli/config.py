"""The configuration file: defaults of options, in TOML; some options can never be set there (cli.md 6.12)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from binlogtool.errors import InputOutputError, UsageError

FORBIDDEN = frozenset({"apply", "yes", "allow_discard_valid"})
"""Options that only the command line may give: neither the environment nor a file."""


def user_file() -> str:
    """Where the user's configuration lies, whether it exists or not."""
    named = os.environ.get("BINLOGTOOL_CONFIG")
    if named:
        return named
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "binlogtool", "config.toml")


def load(path: str | None) -> dict[str, Any]:
    """The options of a named file, or of the user's file if there is one.

    Raises:
        InputOutputError: the named file cannot be read.
        UsageError: it is no TOML, or sets what it must not.
    """
    name = path or user_file()
    must_exist = bool(path or os.environ.get("BINLOGTOOL_CONFIG"))
    try:
        with open(name, "rb") as file:
            text = file.read()
    except OSError as error:
        if must_exist:
            raise InputOutputError(f"{name}: {error.strerror}") from None
        return {}
    return _parsed(text, name)


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    import tomllib

    try:
        values = tomllib.loads(text.decode("utf-8"))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    table = _named({key: value for key, value in values.items() if not isinstance(value, dict)})
    commands = {key.replace("_", "-"): _named(value) for key, value in values.items() if isinstance(value, dict)}
    for options in (table, *commands.values()):
        for key in FORBIDDEN & options.keys():
            raise UsageError(f"{name}: --{key.replace('_', '-')} can only be given on the command line")
    return {**table, **commands}


def _named(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items()}


def wanted(args: Sequence[str]) -> tuple[str | None, bool]:
    """Which file a command line names, and whether it wants none at all. Looked up before any other option is read."""
    path, none = None, False
    for position, word in enumerate(args):
        if word == "--":
            break
        none = none or word == "--no-config"
        if word == "--config" and position + 1 < len(args):
            path = args[position + 1]
        elif word.startswith("--config="):
            path = word.partition("=")[2]
    return path, none


def check_known(table: Mapping[str, Any], command: str, known: Iterable[str]) -> None:
    """Refuses options that a command does not have.

    Raises:
        UsageError: there is one.
    """
    for key in table.keys() - set(known):
        raise UsageError(f"configuration: {command} has no option --{key.replace('_', '-')}")
