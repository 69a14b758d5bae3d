"""Values of the global options, from before or after the command, the environment or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from binlogtool.errors import UsageError
from binlogtool.limits import Limits

_SOURCE_PRECEDENCE = {
    ParameterSource.COMMANDLINE: 0,
    ParameterSource.PROMPT: 0,
    ParameterSource.ENVIRONMENT: 1,
    ParameterSource.DEFAULT_MAP: 2,
    ParameterSource.DEFAULT: 3,
}


class GlobalSettings(msgspec.Struct, frozen=True):
    """The global options. verbosity: -v counts up, -q counts down. timeout: seconds."""

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
    max_record: int | None = None
    max_inflate: int | None = None
    max_depth: int | None = None
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
        names = ("max_memory", "max_record", "max_inflate", "max_depth", "timeout")
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Limits(**values)

    def choose_output_format(self, choices: Sequence[str]) -> str:
        """Return the output format; the first choice is the default.

        Raises:
            UsageError: this command has no such output.
        """
        if self.output_format is None:
            return choices[0]
        if self.output_format not in choices:
            raise UsageError(f"output format {self.output_format!r}: this command has {', '.join(choices)}")
        return self.output_format


def merge_global_values(context: click.Context, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of the global options: command line, environment, file; the command's before the group's."""
    outer = context.parent or context
    return {
        name: (context if _source_rank(context, name) <= _source_rank(outer, name) else outer).params.get(name)
        for name in names
    }


def _source_rank(context: click.Context, name: str) -> int:
    source = context.get_parameter_source(name)
    return 9 if source is None else _SOURCE_PRECEDENCE.get(source, 9)
