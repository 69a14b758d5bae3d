"""The classes behind every command: global options on both sides, defaults from a file, commands loaded when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

import binlogtool
from binlogtool.cli import config
from binlogtool.cli.options import GLOBAL_NAMES, global_options, o
from binlogtool.cli.output_files import refuse_collisions
from binlogtool.cli.settings import Settings, merged

CONFIG = "binlogtool.config"
"""Which configuration file was read: a member of the context's `meta`."""


class _Helped(click.Command):
    """With a `--help` made like every other option (see `Option`)."""

    _help: click.Option | None = None

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option."""
        if self._help is None:
            self._help = o(
                self.get_help_option_names(ctx), is_flag=True, expose_value=False, is_eager=True, callback=_show_help,
                help="Show this message and exit.",
            )  # fmt: skip
        return self._help


def _show_help(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class Command(_Helped):
    """A command whose function gets the run first: `function(run, **own options) -> exit status or None`.

    examples: (what it shows, command line) pairs for the man page and the help. outputs: of -O, for shells to offer.
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
        """Refuses unknown options of the configuration file."""
        config.check_known(ctx.default_map or {}, self.name or "", self.params)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Calls the function with its own options; the run gets the settings."""
        run = ctx.obj
        run.settings = Settings.from_values(merged(ctx, GLOBAL_NAMES))
        own = {name: value for name, value in ctx.params.items() if name not in GLOBAL_NAMES}
        if run.settings.format == "list":
            return run.list_formats()
        values = {**ctx.params, "output": run.settings.output, "overwrite": run.settings.overwrite}
        refuse_collisions(self.params, values, ctx.meta.get(CONFIG))
        run.start(self.name or "")
        assert self.callback is not None
        with binlogtool.watched(run.progress):
            status = ctx.invoke(self.callback, run, **own)
        return 6 if run.unread and status in (None, 0) else status

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Own options first, then the global ones."""
        groups = (("Options", [*self.own_params, self.get_help_option(ctx)]), ("Global options", self.params))
        for title, params in groups:
            own = title == "Options"
            rows = [p.get_help_record(ctx) for p in params if p is not None and _shown(p, own)]
            shown = [row for row in rows if row is not None]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write_text("\n\n".join(f"\b\n{line}" for _, line in self.examples))


def _shown(param: click.Parameter, own: bool) -> bool:
    return isinstance(param, click.Option) and (own or param.name in GLOBAL_NAMES)


class LazyGroup(_Helped, click.Group):
    """A group that knows names and short helps of its commands, and imports one when it is used.

    commands: name -> (module, short help). The module's command is called `command`.
    """

    def __init__(self, *, lazy: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self.lazy:
            return None
        command: click.Command = importlib.import_module(self.lazy[cmd_name][0]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Loads the defaults of the configuration file first, wherever on the line the file is named."""
        if not ctx.resilient_parsing:
            path, none = config.wanted(args)
            ctx.default_map = {} if none else config.load(path)
            ctx.meta[CONFIG] = None if none else path or config.user_file()
            top = {k: v for k, v in ctx.default_map.items() if not isinstance(v, dict)}
            config.check_known(top, self.name or "", self.params)
            config.check_commands(ctx.default_map.keys() - top.keys(), self.lazy)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in self.lazy.items()])
