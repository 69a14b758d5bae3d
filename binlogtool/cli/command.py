"""The click command tree, global options on both sides, defaults from a file, and one run of a command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

import binlogtool
from binlogtool import limits
from binlogtool.cli import settings
from binlogtool.cli.command_table import COMMANDS
from binlogtool.cli.options import GLOBAL_NAMES, global_options, option
from binlogtool.cli.output_destination import OutputDestination, refuse_collisions
from binlogtool.cli.settings import GlobalSettings, merge_global_values
from binlogtool.terminal.escape import escape
from binlogtool.terminal.progress import ProgressDisplay

if TYPE_CHECKING:
    from binlogtool.repair.verify_report import PathFailure


# --- Click classes of the commands ---

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
        settings.check_option_names(ctx.default_map or {}, self.name or "", self.params)
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
            path, is_disabled = settings.find_config_options(args)
            ctx.default_map = {} if is_disabled else settings.load_config(path)
            ctx.meta[CONFIG_META_KEY] = None if is_disabled else path or settings.user_config_path()
            top = {k: v for k, v in ctx.default_map.items() if not isinstance(v, dict)}
            settings.check_option_names(top, self.name or "", self.params)
            settings.check_table_names(ctx.default_map.keys() - top.keys(), self.lazy)
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in self.lazy.items()])


# --- State of one command run ---


class Terminated(BaseException):
    """SIGTERM was received."""


class TimeLimitReached(BaseException):
    """`--timeout` passed, and the library did not stop by itself in time."""


class CommandRun:
    """Context of a command: the settings, the output, and messages to the user."""

    def __init__(self) -> None:
        self.settings = GlobalSettings()
        self.progress = ProgressDisplay()
        self._out: OutputDestination | None = None
        self.owns_process = False
        """True if the process runs only this command line."""
        self.has_unread_files = False
        """True if part of a log was not read, so that the status cannot be 0."""
        self.status = 0
        """Exit status if the run ends early because the reader closed the pipe."""

    def start(self, command: str) -> None:
        """Start the progress display, signal handlers and time limit, and apply the memory limit."""
        if self.owns_process:
            limits.set_ceiling(self.settings.limits.max_memory)
        self.progress = ProgressDisplay(self.settings.progress, command)
        if is_main_thread():
            self.progress.handle_sigusr1()
            if self.settings.timeout:
                signal.signal(signal.SIGALRM, _raise_time_limit)
                signal.setitimer(signal.ITIMER_REAL, self.settings.timeout + max(5.0, 0.05 * self.settings.timeout))

    def open_output(
        self, *, text: bool, inputs: Iterable[str] = (), page: bool = True, defers_errors: bool = False
    ) -> OutputDestination:
        """Open the destination of the command's data."""
        self._out = OutputDestination(
            self.settings, text=text, inputs=inputs, page=page, defers_errors=defers_errors, progress=self.progress
        )
        return self._out

    def cancel_time_limit(self) -> None:
        """Cancel the time limit: what is written from now on is written to its end."""
        if is_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def save_file(self, name: str, data: bytes, *, inputs: Iterable[str] = ()) -> None:
        """Write a file beside the main output, under the same rules as `--output`."""
        with OutputDestination(replace(self.settings, output=name), text=False, inputs=inputs) as out:
            out.write(data)

    def say(self, text: str, *, level: int = 0) -> None:
        """Print a diagnostic line on standard error. level: 0 = unless -q, 1 = with -v, -1 = always."""
        if level <= self.settings.verbosity and sys.stderr is not None:
            self.progress.clear_line()
            try:
                sys.stderr.write(f"binlogtool: {escape(text)}\n")
                sys.stderr.flush()
            except OSError:
                pass  # standard error is gone

    def say_failures(self, failures: Iterable[PathFailure]) -> None:
        """Print a line for each path that could not be processed."""
        for failure in failures:
            self.say(
                failure.message if failure.path in failure.message else f"{failure.path}: {failure.message}", level=-1
            )

    def say_skipped_files(self, *, as_server: bool = False) -> None:
        """Report files of directories that are not logs and were not read, once.

        as_server: the command predicts the server, which does not read compressed files.
        """
        skipped, self.progress.skipped_files = self.progress.skipped_files, {}
        if skipped:
            from binlogtool.repair.verify_report import COMPRESSED_NOT_READ, SkippedFiles
            from binlogtool.report.wording import render_skipped_files

            skipped_by_path = [SkippedFiles(path, files) for path, files in skipped.items()]
            for entry in skipped_by_path:
                for path in () if as_server else entry.compressed_paths:
                    self.has_unread_files = True
                    self.say(f"{path}: {COMPRESSED_NOT_READ}", level=-1)
            for line in render_skipped_files(skipped_by_path, list_names=self.settings.verbosity > 0):
                self.say(line)

    def say_work_messages(self) -> None:
        """Print the messages about the work on a cluster, once."""
        notes, self.progress.work_messages = self.progress.work_messages, []
        for text in notes:
            self.say(text)

    def describe_partial_output(self) -> str:
        """Return a text about the state of the output after a limit ended the run."""
        name = self.settings.output
        if name not in (None, "-"):
            return f"{name} was not written"
        return (
            "what was printed is partial" if self._out is not None and self._out.has_written else "nothing was printed"
        )

    def list_formats(self) -> int:
        """Handle `--format list`."""
        from binlogtool.cli.options import print_formats

        return print_formats(self)

    def show_version(self) -> int:
        """Handle `--version`."""
        from binlogtool.cli.version import print_version

        return print_version(self)

    def use_colour(self, output: OutputDestination) -> bool:
        """Return True if colours are to be used."""
        if self.settings.color != "auto":
            return self.settings.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return output.isatty() and os.environ.get("TERM") != "dumb"


def is_main_thread() -> bool:
    """Return True in the main thread, the only one that can handle signals."""
    import threading

    return threading.current_thread() is threading.main_thread()


def _raise_time_limit(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimitReached


# --- The command group `binlogtool` ---

HELP = """Inspect, verify and repair database binary logs and write-ahead logs.

PATH is a file, a directory (the files of one log, in order), or - for standard input. Reading never changes an input.
Options can be given before or after the command and its paths.
"""


@click.pass_context
def _run_group(context: click.Context, /, version: bool, **_options: object) -> int | None:
    run: CommandRun = context.obj
    run.settings = GlobalSettings.from_values(merge_global_values(context, GLOBAL_NAMES))
    if version:
        context.exit(run.show_version())
    if context.invoked_subcommand is not None:
        return None
    if run.settings.format == "list":
        return run.list_formats()
    click.echo(context.get_help())
    return 0 if context.resilient_parsing else 2


def build_command_group() -> LazyGroup:
    """Build the command group; commands are imported when they are used."""
    version = option(["-V", "--version"], is_flag=True, help="Show the version; with -v also formats and backends.")
    return LazyGroup(
        name="binlogtool",
        lazy=COMMANDS,
        callback=_run_group,
        params=[*global_options(), version],
        help=HELP,
        invoke_without_command=True,
        result_callback=None,
        context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "BINLOGTOOL"},
    )
