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
from binlogtool.cli.destination import OutputDestination
from binlogtool.cli.progress import ProgressDisplay
from binlogtool.cli.settings import GlobalSettings
from binlogtool.render.escape import escape

if TYPE_CHECKING:
    from binlogtool.recovery.report import PathFailure


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
            memory.set_ceiling(self.settings.limits.max_memory)
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
            from binlogtool.recovery.report import COMPRESSED_NOT_READ, SkippedFiles
            from binlogtool.report.left import render_skipped_files

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
        from binlogtool.cli.listed import print_formats

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
