"""State of one command run: settings, output, diagnostics, signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from binlogtool import memory
from binlogtool.cli.destination import Output
from binlogtool.cli.progress import Progress
from binlogtool.cli.settings import Settings
from binlogtool.render.escape import escape

if TYPE_CHECKING:
    from binlogtool.recovery.report import Failure


class Terminated(BaseException):
    """SIGTERM was received."""


class TimeUp(BaseException):
    """`--timeout` passed, and the library did not stop by itself in time."""


class Run:
    """Context of a command: the settings, the output, and messages to the user."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.progress = Progress()
        self._out: Output | None = None
        self.own = False
        """True if the process runs only this command line."""
        self.unread = False
        """True if part of a log was not read, so that the status cannot be 0."""
        self.status = 0
        """Exit status if the run ends early because the reader closed the pipe."""

    def start(self, command: str) -> None:
        """Start the progress display, signal handlers and time limit, and apply the memory limit."""
        if self.own:
            memory.keep(self.settings.limits.max_memory)
        self.progress = Progress(self.settings.progress, command)
        if in_main_thread():
            self.progress.listen()
            if self.settings.timeout:
                signal.signal(signal.SIGALRM, _time_up)
                signal.setitimer(signal.ITIMER_REAL, self.settings.timeout + max(5.0, 0.05 * self.settings.timeout))

    def output(self, *, text: bool, inputs: Iterable[str] = (), page: bool = True, patient: bool = False) -> Output:
        """Open the destination of the command's data."""
        self._out = Output(self.settings, text=text, inputs=inputs, page=page, patient=patient, screen=self.progress)
        return self._out

    def no_time_limit(self) -> None:
        """Cancel the time limit: what is written from now on is written to its end."""
        if in_main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def save(self, name: str, data: bytes, *, inputs: Iterable[str] = ()) -> None:
        """Write a file beside the main output, under the same rules as `--output`."""
        with Output(replace(self.settings, output=name), text=False, inputs=inputs) as out:
            out.write(data)

    def say(self, text: str, *, level: int = 0) -> None:
        """Print a diagnostic line on standard error. level: 0 = unless -q, 1 = with -v, -1 = always."""
        if level <= self.settings.verbosity and sys.stderr is not None:
            self.progress.clear()
            try:
                sys.stderr.write(f"binlogtool: {escape(text)}\n")
                sys.stderr.flush()
            except OSError:
                pass  # standard error is gone

    def say_failures(self, failures: Iterable[Failure]) -> None:
        """Print a line for each path that could not be processed."""
        for one in failures:
            self.say(one.message if one.path in one.message else f"{one.path}: {one.message}", level=-1)

    def say_left(self, *, as_server: bool = False) -> None:
        """Report files of directories that are not logs and were not read, once.

        as_server: the command predicts the server, which does not read compressed files.
        """
        aside, self.progress.aside = self.progress.aside, {}
        if aside:
            from binlogtool.recovery.report import UNREAD, LeftOut
            from binlogtool.report.left import left_lines

            found = [LeftOut(path, files) for path, files in aside.items()]
            for one in found:
                for path in () if as_server else one.unread:
                    self.unread = True
                    self.say(f"{path}: {UNREAD}", level=-1)
            for line in left_lines(found, names=self.settings.verbosity > 0):
                self.say(line)

    def say_noted(self) -> None:
        """Print the messages about the work on a cluster, once."""
        notes, self.progress.notes = self.progress.notes, []
        for text in notes:
            self.say(text)

    def rest_of_output(self) -> str:
        """Return a text about the state of the output after a limit ended the run."""
        name = self.settings.output
        if name not in (None, "-"):
            return f"{name} was not written"
        return "what was printed is partial" if self._out is not None and self._out.begun else "nothing was printed"

    def list_formats(self) -> int:
        """Handle `--format list`."""
        from binlogtool.cli.listed import list_formats

        return list_formats(self)

    def show_version(self) -> int:
        """Handle `--version`."""
        from binlogtool.cli.version import show_version

        return show_version(self)

    def colour(self, output: Output) -> bool:
        """Return True if colours are to be used."""
        if self.settings.color != "auto":
            return self.settings.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return output.isatty() and os.environ.get("TERM") != "dumb"


def in_main_thread() -> bool:
    """Return True in the main thread, the only one that can handle signals."""
    import threading

    return threading.current_thread() is threading.main_thread()


def _time_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeUp
