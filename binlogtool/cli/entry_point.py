"""Run one command line from its words to its exit status; errors become one line each."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TextIO

import click

from binlogtool import limits
from binlogtool.cli.click_command_tree import CommandRun, Terminated, TimeLimitReached, is_main_thread
from binlogtool.errors import BinlogtoolError, LimitError, format_name_suggestions
from binlogtool.limits import MIB

STATUS_INTERRUPTED, STATUS_TERMINATED, STATUS_INTERNAL_ERROR = 130, 143, 70


_MODULE_EXTRAS = dict.fromkeys(("numpy", "pyspark", "py4j", "pyarrow", "fastavro"), "spark")
"""Module that the base installation lacks -> the extra that installs it."""

_OTHER_WORDS = {"table": "object", "space": "object", "server": "origin", "gtid": "transaction"}
"""Common other names of choices -> the names that exist."""

_QUOTED_VALUE = re.compile(r"'([^']*)' ")


def run_command_line(args: Sequence[str] | None = None) -> int:
    """Run one command line, and return its exit status; no exception escapes."""
    _reserve_standard_descriptors()
    current = CommandRun()
    current.owns_process = args is None
    if current.owns_process:
        os.environ["PYTHONSAFEPATH"] = "1"  # Python subprocesses must not import from the working directory
    arguments = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the help has characters that some locales lack
    try:
        return _run_guarded(current, arguments)
    finally:
        current.progress.finish_display()
        if is_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)
        for stream in (sys.stdout, sys.stderr):
            _flush_stream(stream)
        if current.owns_process:
            gc.freeze()  # the process ends: no need for another garbage collection


def _run_guarded(current: CommandRun, arguments: list[str]) -> int:
    debug = "--debug" in arguments
    try:
        return _parse_and_run_command(current, arguments)
    except BrokenPipeError:
        return current.status
    except KeyboardInterrupt:
        current.print_diagnostic("interrupted; no partial output file was left")
        return STATUS_INTERRUPTED
    except Terminated:
        current.print_diagnostic("terminated; no partial output file was left")
        return STATUS_TERMINATED
    except TimeLimitReached:
        current.print_diagnostic(
            f"the time limit was reached (--timeout); {current.describe_partial_output()}", level=-1
        )
        return 6
    except Exception as error:
        if debug and not isinstance(error, (click.exceptions.Exit, click.ClickException)):
            import traceback

            traceback.print_exc()
        return _print_error_and_choose_status(current, error, debug=debug)


def _parse_and_run_command(command_run: CommandRun, arguments: list[str]) -> int:
    from binlogtool.cli.click_command_tree import build_command_group

    group = build_command_group()
    if instruction := os.environ.get("_BINLOGTOOL_COMPLETE"):
        from click.shell_completion import shell_complete

        import binlogtool.cli.completion  # noqa: F401  (registers the class for Bash)

        return shell_complete(group, {"obj": command_run}, "binlogtool", "_BINLOGTOOL_COMPLETE", instruction)
    if is_main_thread():
        signal.signal(signal.SIGTERM, _raise_terminated)
    with group.make_context("binlogtool", arguments, obj=command_run) as context:
        status = group.invoke(context)
    return status if isinstance(status, int) else 0


def _print_error_and_choose_status(command_run: CommandRun, error: Exception, *, debug: bool) -> int:
    """Print one line about an error, and return its exit status."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            return _report_usage_error(command_run, error)
        case LimitError():
            command_run.print_diagnostic(f"{error}; {command_run.describe_partial_output()}", level=-1)
            return error.exit_code
        case BinlogtoolError():
            command_run.print_diagnostic(str(error), level=-1)
            return error.exit_code
        case OSError():
            command_run.print_diagnostic(f"{error.filename or 'standard output'}: {error.strerror or error}", level=-1)
            return 4
        case ImportError() if (extra := _MODULE_EXTRAS.get((error.name or "").partition(".")[0])) is not None:
            command_run.print_diagnostic(
                f"this needs {error.name}: run `pip install '.[{extra}]'` in a checkout", level=-1
            )
            return 4
        case MemoryError():
            limits.lift_memory_ceiling()
            max_memory = command_run.settings.limits.max_memory
            problem = (
                f"the work needs more than --max-memory ({max_memory:,} bytes) allows, or more than this machine has"
            )
            advice = f"try --max-memory {-(-4 * max_memory // MIB)}MiB"
            command_run.print_diagnostic(
                f"out of memory: {problem}; {advice}; {command_run.describe_partial_output()}", level=-1
            )
            return 6
    where = "see the traceback above" if debug else _write_crash_report(error)
    command_run.print_diagnostic(f"internal error: {type(error).__name__}: {_error_text(error)}; {where}", level=-1)
    return STATUS_INTERNAL_ERROR


def _error_text(error: Exception) -> str:
    """Return an error's message; Spark's errors fetch it from Java, which may have ended with its session."""
    try:
        return str(error)
    except Exception:
        return "its message was lost with its Spark session"


def _report_usage_error(current: CommandRun, error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    message, suggestion = error.format_message(), _suggest_choice(error)
    current.print_diagnostic(f"{message.removesuffix('.') if suggestion else message}{suggestion}{hint}", level=-1)
    return 2


def _suggest_choice(error: click.ClickException) -> str:
    """Return a suggestion of similar choices for an invalid value of an option; "" if there is none."""
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    value = _QUOTED_VALUE.match(error.message)
    if not isinstance(kind, click.Choice) or value is None:
        return ""
    if suggestion := format_name_suggestions(value[1], kind.choices):
        return suggestion
    words = {word: choice for word, choice in _OTHER_WORDS.items() if choice in kind.choices}
    return next((f"; did you mean {words[word]}?" for word in words if format_name_suggestions(value[1], [word])), "")


def _write_crash_report(error: Exception) -> str:
    """Write the traceback to a file, and return a text that names the file."""
    import traceback

    text = "".join(traceback.format_exception(error))
    try:
        import tempfile

        with tempfile.NamedTemporaryFile("w", prefix="binlogtool-", suffix=".crash.txt", delete=False) as file:
            file.write(f"binlogtool, Python {sys.version}\n{text}")
            return f"please report it and attach {file.name}"
    except OSError:
        return "run again with --debug for a traceback"


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _reserve_standard_descriptors() -> None:
    """Open /dev/null for closed standard streams, so that no other file gets their descriptors."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this descriptor


def _flush_stream(stream: TextIO | None) -> None:
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        _redirect_to_null(stream)


def _redirect_to_null(stream: TextIO | None) -> None:
    """Redirect the stream to /dev/null, so that the interpreter's final flush of unwritable data succeeds."""
    try:
        if stream is not None:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    except (OSError, ValueError):
        pass  # already closed
