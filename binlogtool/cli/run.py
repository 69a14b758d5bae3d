"""One run of the program: settings, diagnostics, signals, and the one place that turns errors into exit statuses."""

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
        self.unread = False
        """Was a part of a log left out, so that no status may be 0?"""
        self.status = 0
        """What a run that ends early because nobody reads its output ends with."""

    def start(self, command: str) -> None:
        """Starts the clock, and the answers to SIGUSR1; the ceiling of memory holds from here on."""
        if self.own:
            memory.keep(self.settings.limits.max_memory)
        self.progress = Progress(self.settings.progress, command)
        if in_main_thread():
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
        if in_main_thread():
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

    def say_left(self, *, as_server: bool = False) -> None:
        """The files of directories that are no logs, and were not read: once.

        as_server: what the server does is told, which reads no compressed files.
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
        from binlogtool.cli.listed import list_formats

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


def in_main_thread() -> bool:
    """Only there are signals answered."""
    import threading

    return threading.current_thread() is threading.main_thread()


def _time_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeUp
