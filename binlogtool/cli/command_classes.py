"""Click classes of the commands: global options on both sides, defaults from a file, commands imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

import binlogtool
from binlogtool.cli import config
from binlogtool.cli.options import GLOBAL_NAMES, global_options, option
from binlogtool.cli.output_files import refuse_collisions
from binlogtool.cli.settings import GlobalSettings, merge_global_values

CONFIG_META_KEY = "binlogtool.config"
"""Key in the context's `meta` of the configuration file that was read."""


class _CommandWithHelp(click.Command):
    """Click command whose `--help` is created like every other option (see `Option`)."""

    _help: click.Option | None = None

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option `--help`."""
        if self._help is None:
            self._help = option(
                self.get_help_option_names(ctx), is_flag=True, expose_value=False, is_eager=True, callback=_print_help,
                help="Show this message and exit.",
            )  # fmt: skip
        return self._help


def _print_help(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class Command(_CommandWithHelp):
    """A command whose function gets the run first: `function(run, **own options) -> exit status or None`.

    examples: (description, command line) pairs for the manual page and the help. outputs: values of -O, for shell
    completion.
    """

    def __init__(
        self,
        name: str,
        *,
        callback: Callable[..., int | None],
        params: list[click.Parameter],
        help: str,
        examples: tuple[tuple[str, str], ...] = (),
        outputs: Sequence[str] = ("text", "json"),
    ) -> None:
        super().__init__(name, callback=callback, params=params, help=help)
        self.examples = examples
        self.outputs = tuple(outputs)
        self.own_params = list(params)
        self.params += global_options()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the option names of the configuration file before parsing."""
        config.check_option_names(ctx.default_map or {}, self.name or "", self.params)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with the command's own options; the run gets the global settings."""
        run = ctx.obj
        run.settings = GlobalSettings.from_values(merge_global_values(ctx, GLOBAL_NAMES))
        own = {name: value for name, value in ctx.params.items() if name not in GLOBAL_NAMES}
        if run.settings.format == "list":
            return run.list_formats()
        values = {**ctx.params, "output": run.settings.output, "overwrite": run.settings.overwrite}
        refuse_collisions(self.params, values, ctx.meta.get(CONFIG_META_KEY))
        run.start(self.name or "")
        assert self.callback is not None
        with binlogtool.progress_listener(run.progress):
            status = ctx.invoke(self.callback, run, **own)
        return 6 if run.has_unread_files and status in (None, 0) else status

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then the global ones."""
        groups = (("Options", [*self.own_params, self.get_help_option(ctx)]), ("Global options", self.params))
        for title, params in groups:
            is_own = title == "Options"
            rows = [p.get_help_record(ctx) for p in params if p is not None and _is_shown(p, is_own)]
            shown = [row for row in rows if row is not None]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_text("\n\n".join(f"\b\n{line}" for _, line in self.examples))


def _is_shown(param: click.Parameter, is_own: bool) -> bool:
    return isinstance(param, click.Option) and (is_own or param.name in GLOBAL_NAMES)


class LazyGroup(_CommandWithHelp, click.Group):
    """Group that knows names and short helps of its commands, and imports a command when it is used.

    lazy: name -> (module, short help). The module's command is called `command`.
    """

    def __init__(self, *, lazy: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in self.lazy:
            return None
        command: click.Command = importlib.import_module(self.lazy[cmd_name][0]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Load the defaults of the configuration file before parsing, wherever on the line the file is named."""
        if not ctx.resilient_parsing:
            path, is_disabled = config.find_config_options(args)
            ctx.default_map = {} if is_disabled else config.load_config(path)
            ctx.meta[CONFIG_META_KEY] = None if is_disabled else path or config.user_config_path()
            top = {k: v for k, v in ctx.default_map.items() if not isinstance(v, dict)}
            config.check_option_names(top, self.name or "", self.params)
            config.check_table_names(ctx.default_map.keys() - top.keys(), self.lazy)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in self.lazy.items()])
