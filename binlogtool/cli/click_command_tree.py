"""Click command tree, global options before and after the command, defaults from a file, and the run of a command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.core import ParameterSource
from msgspec.structs import replace

import binlogtool
from binlogtool import limits
from binlogtool.cli.command_table import COMMAND_GROUPS, COMMANDS
from binlogtool.cli.help_page import MAX_WIDTH, render_command_help, render_group_help
from binlogtool.cli.options import GLOBAL_NAMES, global_options, option
from binlogtool.cli.output_destination import OutputDestination, refuse_collisions
from binlogtool.errors import InputOutputError, UsageError, format_name_suggestions, unknown_name_error
from binlogtool.limits import Limits
from binlogtool.terminal.escape_and_fold_text import escape
from binlogtool.terminal.progress_display import ProgressDisplay

if TYPE_CHECKING:
    from binlogtool.verification.verify_report import PathFailure


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
    if _has_zero_byte(values):
        raise UsageError(f"{name}: a value contains a zero byte, which no option takes")
    table = _to_option_names({key: value for key, value in values.items() if not isinstance(value, dict)})
    commands = {
        key.replace("_", "-"): _to_option_names(value) for key, value in values.items() if isinstance(value, dict)
    }
    for options in (table, *commands.values()):
        for key in [key for key in options if key in COMMAND_LINE_ONLY]:
            raise UsageError(f"{name}: --{key.replace('_', '-')} can only be given on the command line")
    return {**table, **commands}


def _has_zero_byte(value: Any) -> bool:
    """Return True if a text of the value has a zero byte, which arguments of a command line cannot have."""
    if isinstance(value, dict):
        return any(map(_has_zero_byte, value.values()))
    return any(map(_has_zero_byte, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _to_option_names(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in table.items()}


def find_config_path_and_disabled(args: Sequence[str]) -> tuple[str | None, bool]:
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


def check_config_options_of_command(
    config_table: Mapping[str, Any], command: str, params: Iterable[click.Parameter]
) -> None:
    """Check that the command has these options, and that their values have a possible type.

    Raises:
        UsageError: an option is unknown, or a value has a wrong type.
    """
    params_by_name = {param.name: param for param in params}
    for key, value in config_table.items():
        option = f"--{key.replace('_', '-')}"
        if key not in params_by_name:
            suggestion = format_name_suggestions(
                key.replace("_", "-"), (name.replace("_", "-") for name in params_by_name if name)
            )
            raise UsageError(f"configuration: {command} has no option {option}{suggestion}")
        is_multiple = isinstance(value, list) and getattr(params_by_name[key], "multiple", False)
        if not all(isinstance(one, (str, int, float)) for one in (value if is_multiple else [value])):
            form = "text, a number, true or false"
            raise UsageError(f"configuration: {option}: write {form}{', or a list of them' if is_multiple else ''}")


def wrap_repeatable_values_in_lists(
    config_table: Mapping[str, Any], params: Iterable[click.Parameter]
) -> dict[str, Any]:
    """Return a table of the configuration file with a list of texts for each repeatable option."""
    repeatable = {param.name for param in params if getattr(param, "multiple", False)}
    return {
        key: [str(one) for one in (value if isinstance(value, list) else [value])] if key in repeatable else value
        for key, value in config_table.items()
    }


def check_table_names(tables: Iterable[str], commands: Iterable[str]) -> None:
    """Check that every table of the configuration file has the name of a command.

    Raises:
        UsageError: a table has another name.
    """
    for name in [name for name in tables if name not in commands]:
        suggestion = format_name_suggestions(name, commands)
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

    def make_read_options(self, hints: binlogtool.Hints | None) -> dict[str, Any]:
        """Return the arguments of the library that say how a log is read."""
        return {"format": self.format, "limits": self.limits, "backend": self.backend, "hints": hints}

    def choose_output_format(self, choices: Sequence[str]) -> str:
        """Return the output format; the first choice is the default.

        Raises:
            UsageError: this command has no such output.
        """
        if self.output_format is None:
            return choices[0]
        if self.output_format not in choices:
            suggestion = format_name_suggestions(self.output_format, choices)
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


# --- Click classes of the commands ---

CONFIG_META_KEY = "binlogtool.config"
"""Key in the context's `meta` for the path of the configuration file that was read."""
ARGUMENTS_META_KEY = "binlogtool.arguments"
"""Key in the context's `meta` for all words of the command line."""


S = TypeVar("S", bound=msgspec.Struct)


def collect_options(struct: type[S], values: Mapping[str, Any]) -> S:
    """Build an options struct from click's flat values; a field that is itself an options struct gets the same values.

    The field of an option that the command lacks keeps its default.
    """
    chosen: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            chosen[field.name] = collect_options(field.type, values)
        elif field.name in values:
            chosen[field.name] = values[field.name]
    return struct(**chosen)


_OUTPUT_OPTIONS = ("output", "overwrite")


class _CommandWithHelp(click.Command):
    """Click command with `-h` and `--help`, which are created like every other option (see `Option`)."""

    _help_options: tuple[click.Option, ...] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters and the options for help."""
        return [*self.params, *self._get_help_options()]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option `--help`."""
        return self._get_help_options()[-1]

    def get_help(self, ctx: click.Context) -> str:
        """Return the full help as plain text."""
        return self.render_help(ctx, width=ctx.terminal_width or MAX_WIDTH, is_full=True)

    def render_help(self, ctx: click.Context, *, width: int, is_full: bool, has_colour: bool = False) -> str:
        """Return the help for a terminal of this width; see `help_page`."""
        raise NotImplementedError

    def _get_help_options(self) -> tuple[click.Option, ...]:
        if not self._help_options:
            self._help_options = (
                _flag_with_callback("-h", _print_short_help, "Show the usual options."),
                _flag_with_callback("--help", _print_full_help, "Show all options, examples and exit statuses."),
            )
        return self._help_options


def _flag_with_callback(
    names: str, callback: Callable[[click.Context, click.Parameter, bool], None], help: str, *, hidden: bool = False
) -> click.Option:
    """Return a flag whose callback runs while the line is parsed, even if the rest of the line is wrong."""
    return option(
        names, help, is_flag=True, expose_value=False, is_eager=True, callback=callback, hidden=hidden,
        allow_from_autoenv=False, group="Configuration",
    )  # fmt: skip


def _print_short_help(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print_help(ctx, is_full=False)
        ctx.exit()


def _print_full_help(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print_help(ctx, is_full=True)
        ctx.exit()


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.exit(ctx.obj.show_version())


def print_help(ctx: click.Context, *, is_full: bool) -> None:
    """Print the help of the context's command; on a terminal it is paged, coloured, and as wide as the terminal."""
    from binlogtool.terminal.escape_and_fold_text import terminal_columns

    command, run = ctx.command, ctx.find_object(CommandRun)
    assert isinstance(command, _CommandWithHelp)
    if run is None:
        run = CommandRun()
    run.settings = find_display_settings(ctx.meta.get(ARGUMENTS_META_KEY, ()))
    with run.open_output(text=True) as out:
        width = min(terminal_columns(), MAX_WIDTH)
        text = command.render_help(ctx, width=width, is_full=is_full, has_colour=run.is_colour_used(out))
        out.write(f"{text}\n".encode("utf-8", "backslashreplace"))


class Command(_CommandWithHelp):
    """Command whose function takes the run first: `function(run, **own options) -> exit status or None`.

    Args:
        options_type: a struct of the command's own options; the function is then `function(run, options)`, see
            `collect_options`.
        help: at most six lines: what the command does and what it never does.
        notes: further paragraphs, for the manual page.
        examples: (sentence, command line) pairs for the manual page and the help.
        outputs: values of -O, the default first.
        writes_files: the help also lists --output and --overwrite.
    """

    def __init__(
        self,
        name: str,
        *,
        callback: Callable[..., int | None],
        params: list[click.Parameter],
        help: str,
        notes: str = "",
        examples: tuple[tuple[str, str], ...] = (),
        outputs: Sequence[str] = ("text", "json"),
        options_type: type[msgspec.Struct] | None = None,
        writes_files: bool = False,
    ) -> None:
        super().__init__(name, callback=callback, params=params, help=help)
        self.notes, self.examples, self.outputs = notes, examples, tuple(outputs)
        self.options_type = options_type
        version = _flag_with_callback("-V --version", _print_version, "Show the version.", hidden=True)
        self.params = [*params, *global_options(), version]
        self.help_params = [
            *params,
            *(one for one in self.params if writes_files and one.name in _OUTPUT_OPTIONS),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Check the option names of the configuration file before parsing."""
        check_config_options_of_command(ctx.default_map or {}, self.name or "", self.params)
        ctx.default_map = wrap_repeatable_values_in_lists(ctx.default_map or {}, self.params)
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
        run.start_progress_and_limits(self.name or "")
        assert self.callback is not None
        with binlogtool.progress_listener(run.progress):
            if self.options_type is None:
                status = ctx.invoke(self.callback, run, **own)
            else:
                status = ctx.invoke(self.callback, run, collect_options(self.options_type, own))
        return 6 if run.has_unread_files and status in (None, 0) else status

    def render_help(self, ctx: click.Context, *, width: int, is_full: bool, has_colour: bool = False) -> str:
        """Return the help with the command's own options; global options are described by `binlogtool --help`."""
        return render_command_help(
            self, ctx, params=self.help_params, examples=self.examples, outputs=self.outputs, width=width,
            is_full=is_full, has_colour=has_colour,
        )  # fmt: skip


class LazyGroup(_CommandWithHelp, click.Group):
    """Command group that knows the names and short helps of its commands, and imports a command when it is used.

    lazy: name -> (module or module:attribute, short help); without an attribute the command is called `command`.
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
        module, _, name = self.lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names.

        Raises:
            UsageError: there is no such command; the message suggests similar names.
        """
        if args[0] not in self.lazy and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(str(unknown_name_error("command", args[0], self.lazy)), ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Load the defaults of the configuration file before parsing, wherever the line names the file."""
        ctx.meta[ARGUMENTS_META_KEY] = tuple(args)
        if not ctx.resilient_parsing:
            path, is_disabled = find_config_path_and_disabled(args)
            ctx.default_map = {} if is_disabled else load_config(path)
            ctx.meta[CONFIG_META_KEY] = None if is_disabled else path or user_config_path()
            top = {k: v for k, v in ctx.default_map.items() if not isinstance(v, dict)}
            check_config_options_of_command(top, self.name or "", self.params)
            check_table_names([name for name in ctx.default_map if name not in top], self.lazy)
        return super().parse_args(ctx, args)

    def render_help(self, ctx: click.Context, *, width: int, is_full: bool, has_colour: bool = False) -> str:
        """Return the help with the commands (without importing them) and the global options."""
        commands = {title: [(name, self.lazy[name][1]) for name in names] for title, names in COMMAND_GROUPS.items()}
        return render_group_help(
            ctx, text=self.help or "", commands=commands, params=self.get_params(ctx), width=width, is_full=is_full,
            has_colour=has_colour,
        )  # fmt: skip


# --- State of one command run ---


class Terminated(BaseException):
    """Raised when SIGTERM is received."""


class TimeLimitReached(BaseException):
    """Raised when `--timeout` has passed and the library has not stopped by itself."""


class CommandRun:
    """Context of a running command: settings, output, and messages to the user."""

    def __init__(self) -> None:
        self.settings = GlobalSettings()
        self.progress = ProgressDisplay()
        self._out: OutputDestination | None = None
        self.owns_process = False
        """True if the process runs only this command line."""
        self.has_unread_files = False
        """True if part of a log was not read, so that the status cannot be 0."""
        self.status = 0
        """Exit status so far; it is used if the run ends early because the reader closed the pipe."""

    def start_progress_and_limits(self, command: str) -> None:
        """Start the progress display, signal handlers and time limit, and apply the memory limit."""
        if self.owns_process:
            limits.set_memory_ceiling(self.settings.limits.max_memory)
        self.progress = ProgressDisplay(self.settings.progress, command)
        self.progress.start_ticking()
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
        """Cancel the time limit, so that the following output is written completely."""
        if is_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def save_file(self, name: str, data: bytes, *, inputs: Iterable[str] = ()) -> None:
        """Write an additional file, under the same rules as `--output`."""
        with OutputDestination(replace(self.settings, output=name), text=False, inputs=inputs) as out:
            out.write(data)

    def print_diagnostic(self, text: str, *, level: int = 0) -> None:
        """Print a diagnostic line on standard error. level: 0 = unless -q, 1 = with -v, -1 = always."""
        if level <= self.settings.verbosity and sys.stderr is not None:
            with self.progress.hide_line():
                try:
                    sys.stderr.write(f"binlogtool: {escape(text)}\n")
                    sys.stderr.flush()
                except OSError:
                    pass  # standard error is closed

    def confirm(self, question: str) -> bool:
        """Ask a question on standard error; progress is not shown meanwhile."""
        self.progress.clear_line()
        return click.confirm(question, err=True)

    def report_failures(self, failures: Iterable[PathFailure]) -> None:
        """Print a line for each path that could not be processed."""
        for failure in failures:
            self.print_diagnostic(
                failure.message if failure.path in failure.message else f"{failure.path}: {failure.message}", level=-1
            )

    def report_skipped_files(self, *, as_server: bool = False) -> None:
        """Report, once, the files in directories that were not read because they are no logs.

        as_server: the command predicts the server, which reads neither compressed files nor those of other logs.
        """
        skipped, self.progress.skipped_files = self.progress.skipped_files, {}
        if skipped:
            from binlogtool.report.format_numbers_and_names import render_skipped_files
            from binlogtool.verification.verify_report import SkippedFiles

            skipped_by_path = [SkippedFiles(path, files) for path, files in skipped.items()]
            for entry in skipped_by_path:
                for failure in entry.destroyed_logs if as_server else entry.failures:
                    self.has_unread_files = True
                    self.print_diagnostic(f"{failure.path}: {failure.message}", level=-1)
            for line in render_skipped_files(skipped_by_path, list_names=self.settings.verbosity > 0):
                self.print_diagnostic(line)

    def print_cluster_messages_once(self) -> None:
        """Print, once, the messages about the work on a cluster."""
        notes, self.progress.work_messages = self.progress.work_messages, []
        for text in notes:
            self.print_diagnostic(text)

    def describe_partial_output(self) -> str:
        """Return a text that describes the state of the output after a limit ended the run."""
        name = self.settings.output
        if name not in (None, "-"):
            return f"{name} was not written"
        return (
            "the printed output is partial"
            if self._out is not None and self._out.has_written
            else "nothing was printed"
        )

    def list_formats(self) -> int:
        """Handle `--format list`."""
        from binlogtool.cli.options import print_formats

        return print_formats(self)

    def show_version(self) -> int:
        """Handle `--version`."""
        from binlogtool.cli.version import print_version

        return print_version(self)

    def is_colour_used(self, output: OutputDestination) -> bool:
        """Return True if colours are used on this output."""
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
def _handle_global_options(context: click.Context, /, version: bool, **_options: object) -> int | None:
    run: CommandRun = context.obj
    run.settings = GlobalSettings.from_values(merge_global_values(context, GLOBAL_NAMES))
    if version:
        context.exit(run.show_version())
    if context.invoked_subcommand is not None:
        return None
    if run.settings.format == "list":
        return run.list_formats()
    if not context.resilient_parsing:
        print_help(context, is_full=False)
    return 0 if context.resilient_parsing else 2


def build_command_group() -> LazyGroup:
    """Build the command group; commands are imported when they are used."""
    version = option("-V --version", "Show the version; with -v also formats and backends.", group="Configuration")
    return LazyGroup(
        name="binlogtool",
        lazy=COMMANDS,
        callback=_handle_global_options,
        params=[*global_options(), version],
        help=HELP,
        invoke_without_command=True,
        result_callback=None,
        context_settings={"auto_envvar_prefix": "BINLOGTOOL"},
    )
