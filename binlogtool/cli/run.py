"""One run of the program: settings, diagnostics, signals, and the one place that turns errors into exit statuses."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click
from msgspec.structs import replace

from binlogtool import memory
from binlogtool.cli.output import Output
from binlogtool.cli.progress import Progress
from binlogtool.cli.settings import Settings
from binlogtool.errors import BinlogtoolError, LimitError
from binlogtool.limits import MIB
from binlogtool.render.escape import escape

if TYPE_CHECKING:
    from binlogtool.recovery.report import Failure

INTERRUPTED, TERMINATED, INTERNAL = 130, 143, 70
_EXTRAS = dict.fromkeys(("numpy", "pyspark", "py4j", "pyarrow", "fastavro"), "spark")
"""Modules that the base installation lacks, and what brings them."""


class Terminated(BaseException):
    """SIGTERM came."""


class TimeUp(BaseException):
    """`--timeout` is over, and the library did not end by itself in time."""


class Run:
    """What a command gets: the settings, the output, and a way to speak to the user."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.progress = Progress()
        self._out: Output | None = None
        self.own = False
        """Is the whole process for this one command line?"""
        self.status = 0
        """What a run that ends early because nobody reads its output ends with."""

    def start(self, command: str) -> None:
        """Starts the clock, and the answers to SIGUSR1; the ceiling of memory holds from here on."""
        if self.own:
            memory.keep(self.settings.limits.max_memory)
        self.progress = Progress(self.settings.progress, command)
        if _in_main_thread():
            self.progress.listen()
            if self.settings.timeout:
                signal.signal(signal.SIGALRM, _time_up)
                signal.setitimer(signal.ITIMER_REAL, self.settings.timeout + max(5.0, 0.05 * self.settings.timeout))

    def output(self, *, text: bool, inputs: Iterable[str] = (), page: bool = True, patient: bool = False) -> Output:
        """Where the data goes."""
        self._out = Output(self.settings, text=text, inputs=inputs, page=page, patient=patient, screen=self.progress)
        return self._out

    def no_time_limit(self) -> None:
        """What is written from now on is written to its end."""
        if _in_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def save(self, name: str, data: bytes, *, inputs: Iterable[str] = ()) -> None:
        """Writes a file beside the main output, under the same rules as `--output`."""
        with Output(replace(self.settings, output=name), text=False, inputs=inputs) as out:
            out.write(data)

    def say(self, text: str, *, level: int = 0) -> None:
        """A diagnostic line on standard error. level: 0 = unless -q, 1 = with -v, -1 = always."""
        if level <= self.settings.verbosity and sys.stderr is not None:
            self.progress.clear()
            try:
                sys.stderr.write(f"binlogtool: {escape(text)}\n")
                sys.stderr.flush()
            except OSError:
                pass  # there is no one left to tell

    def say_failures(self, failures: Iterable[Failure]) -> None:
        """The paths that could not be worked on, a line each."""
        for one in failures:
            self.say(one.message if one.path in one.message else f"{one.path}: {one.message}", level=-1)

    def say_left(self) -> None:
        """The files of directories that are no logs, and were not read: once."""
        aside, self.progress.aside = self.progress.aside, {}
        if aside:
            from binlogtool.recovery.report import LeftOut
            from binlogtool.report.left import left_lines

            found = [LeftOut(path, files) for path, files in aside.items()]
            for line in left_lines(found, names=self.settings.verbosity > 0):
                self.say(line)

    def say_noted(self) -> None:
        """What befell the work: once."""
        notes, self.progress.notes = self.progress.notes, []
        for text in notes:
            self.say(text)

    def rest_of_output(self) -> str:
        """What became of an output that a limit ended."""
        name = self.settings.output
        if name not in (None, "-"):
            return f"{name} was not written"
        return "what was printed is partial" if self._out is not None and self._out.begun else "nothing was printed"

    def list_formats(self) -> int:
        """`--format list`."""
        from binlogtool.cli.formats import list_formats

        return list_formats(self)

    def show_version(self) -> int:
        """`--version`."""
        from binlogtool.cli.version import show_version

        return show_version(self)

    def colour(self, output: Output) -> bool:
        """Are escape sequences for colours wanted?"""
        if self.settings.color != "auto":
            return self.settings.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return output.isatty() and os.environ.get("TERM") != "dumb"


def run(args: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; nothing escapes but bugs under `--debug`."""
    _keep_standard_descriptors()
    current = Run()
    current.own = args is None
    words = list(sys.argv[1:] if args is None else args)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # help has characters that not every locale has
    try:
        return _guarded(current, words)
    finally:
        current.progress.end()
        if _in_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)


def _guarded(current: Run, words: list[str]) -> int:
    debug = "--debug" in words
    try:
        return _invoke(current, words)
    except BrokenPipeError:
        return current.status
    except KeyboardInterrupt:
        current.say("interrupted; nothing half-written")
        return INTERRUPTED
    except Terminated:
        current.say("terminated; nothing half-written")
        return TERMINATED
    except TimeUp:
        current.say(f"the time limit (--timeout) ended the work; {current.rest_of_output()}", level=-1)
        return 6
    except Exception as error:
        if debug and not isinstance(error, (click.exceptions.Exit, click.ClickException)):
            import traceback

            traceback.print_exc()
        return _failed(current, error, debug=debug)


def _invoke(current: Run, words: list[str]) -> int:
    from binlogtool.cli.app import build

    group = build()
    if instruction := os.environ.get("_BINLOGTOOL_COMPLETE"):
        from click.shell_completion import shell_complete

        import binlogtool.cli.completion  # noqa: F401  (Bash has a class of its own there)

        return shell_complete(group, {"obj": current}, "binlogtool", "_BINLOGTOOL_COMPLETE", instruction)
    if _in_main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    with group.make_context("binlogtool", words, obj=current) as context:
        status = group.invoke(context)
    return status if isinstance(status, int) else 0


def _failed(current: Run, error: Exception, *, debug: bool) -> int:
    """One line and the exit status of an error."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            return _usage(current, error)
        case LimitError():
            current.say(f"{error}; {current.rest_of_output()}", level=-1)
            return error.exit_code
        case BinlogtoolError():
            current.say(str(error), level=-1)
            return error.exit_code
        case OSError():
            current.say(f"{error.filename or 'standard output'}: {error.strerror or error}", level=-1)
            return 4
        case ImportError() if (extra := _EXTRAS.get((error.name or "").partition(".")[0])) is not None:
            current.say(f"this needs {error.name}: install it with `pip install 'binlogtool[{extra}]'`", level=-1)
            return 4
        case MemoryError():
            memory.lift()
            given = current.settings.limits.max_memory
            most = f"more than --max-memory ({given:,} bytes) allows, or than there is, is needed"
            try_ = f"try --max-memory {-(-4 * given // MIB)}MiB"
            current.say(f"out of memory: {most}; {try_}; {current.rest_of_output()}", level=-1)
            return 6
    where = "the traceback stands above" if debug else _crash_report(error)
    current.say(f"internal error: {type(error).__name__}: {error}; {where}", level=-1)
    return INTERNAL


def _usage(current: Run, error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    current.say(f"{error.format_message()}{hint}", level=-1)
    return 2


def _crash_report(error: Exception) -> str:
    """Writes the traceback to a file and says where."""
    import traceback

    text = "".join(traceback.format_exception(error))
    try:
        import tempfile

        with tempfile.NamedTemporaryFile("w", prefix="binlogtool-", suffix=".crash.txt", delete=False) as file:
            file.write(f"binlogtool, Python {sys.version}\n{text}")
            return f"please report it with {file.name}"
    except OSError:
        return "repeat it with --debug to see where"


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _time_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeUp


def _keep_standard_descriptors() -> None:
    """Where a standard stream is closed, no file that is opened later may take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def _flush(stream: TextIO | None) -> None:
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO | None) -> None:
    """Lets the interpreter's last flush succeed: what is left in the buffer cannot be written anywhere."""
    try:
        if stream is not None:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    except (OSError, ValueError):
        pass  # already closed
