"""Output destinations: standard output, a pager, or a file that appears only when it is complete."""

from __future__ import annotations

import codecs
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import click

from binlogtool.cli.options import PATH
from binlogtool.errors import InputOutputError, RefusedError, UsageError, name_os_errors
from binlogtool.rename_without_replacing import rename_without_replacing

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from binlogtool.cli.click_command_tree import GlobalSettings
    from binlogtool.terminal.progress_display import ProgressDisplay


# --- Protection of inputs and other outputs ---

OUTPUT_OPTIONS = frozenset({"output", "report", "write_baseline", "chart", "plan", "manifest", "to_file", "load_files"})
"""Options that name files to write; every other option of the type PATH names a file to read."""
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1


class _NamedFile(NamedTuple):
    """A file that an option names.

    identity: device and inode; None = the file does not exist. real_path: its path with links resolved.
    """

    option: str
    path: str
    identity: tuple[int, int] | None
    real_path: str

    def is_same_file(self, other: _NamedFile) -> bool:
        """Return True if both names refer to the same file, or will once it exists."""
        return self.real_path == other.real_path or (self.identity is not None and self.identity == other.identity)


def refuse_collisions(params: Sequence[click.Parameter], values: Mapping[str, Any], config: str | None) -> None:
    """Check that no output on a command line replaces an input or another output. config: the configuration file read.

    Raises:
        RefusedError: an output is also an input.
        UsageError: two outputs are the same file.
    """
    outputs = [_identify_file(option, path) for option, path in _list_outputs(params, values)]
    if not outputs:
        return
    inputs = list(_list_inputs(params, values, config))
    for output in outputs:
        for input_file in inputs:
            if output.is_same_file(input_file):
                raise RefusedError(f"{output.path} is an input ({input_file.option}); inputs are never overwritten")
            if values.get("overwrite") and input_file.real_path.startswith(f"{output.real_path}{os.sep}"):
                raise RefusedError(
                    f"{output.path} holds the input {input_file.path} ({input_file.option}); it is not replaced"
                )
    written = [*outputs, *_redirected_output()]
    for index, output in enumerate(written):
        for other in written[:index]:
            if output.is_same_file(other):
                raise UsageError(
                    f"{other.option} and {output.option} write to the same file, {other.path}; use different files"
                )


def _list_outputs(params: Sequence[click.Parameter], values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for param in params:
        name = param.name or ""
        value = values.get(name)
        if name not in OUTPUT_OPTIONS or not value:
            continue
        for text in value if isinstance(value, (tuple, list)) else (value,):
            path = text.partition("=")[2] if name == "report" else text
            if path and path != "-":
                yield param.opts[-1], path


def _list_inputs(
    params: Sequence[click.Parameter], values: Mapping[str, Any], config: str | None
) -> Iterator[_NamedFile]:
    for param in params:
        name, value = param.name or "", values.get(param.name or "")
        if not value or name in OUTPUT_OPTIONS:
            continue
        option = param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
        if name == "conf":
            value = [part.removeprefix("file://") for text in value for part in text.partition("=")[2].split(",")]
            value = [path for path in value if os.path.isfile(path)]
        elif param.type is not PATH:
            continue
        for path in value if isinstance(value, (tuple, list)) else (value,):
            if path == "-":
                yield from _identify_standard_stream(_STANDARD_INPUT, "standard input")
            elif "://" not in path and not (name == "paths" and os.path.isdir(path)):
                yield _identify_file(option, path)
    if config is not None and os.path.exists(config):
        yield _identify_file("--config", config)


def _identify_file(option: str, path: str) -> _NamedFile:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return _NamedFile(option, path, None, _resolve_path(path))
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return _NamedFile(option, path, None, f"{option}={path}")  # a device or a pipe cannot be replaced
    return _NamedFile(option, path, (status.st_dev, status.st_ino), _resolve_path(path))


def _resolve_path(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return os.path.abspath(path)


def _identify_standard_stream(number: int, name: str) -> Iterator[_NamedFile]:
    """Yield a standard stream if it is a regular file."""
    try:
        status = os.fstat(number)
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield _NamedFile(name, name, (status.st_dev, status.st_ino), name)


def _redirected_output() -> Iterator[_NamedFile]:
    if sys.stdout is not None:
        yield from _identify_standard_stream(_STANDARD_OUTPUT, "standard output")


# --- Output destinations ---


def _replace_unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters that an encoding lacks: binlogtool's own by ASCII, others by escapes (an error handler)."""
    assert isinstance(error, UnicodeEncodeError)
    replacement = _ASCII_REPLACEMENTS.get(error.object[error.start])
    return (replacement, error.start + 1) if replacement is not None else codecs.backslashreplace_errors(error)


_LINES_PER_WRITE = 256
"""Number of lines per write."""

_ENCODE_FALLBACK = "binlogtool.otherwise"
_ASCII_REPLACEMENTS = {"·": "-", "…": "...", "│": "|", "─": "-"}
codecs.register_error(_ENCODE_FALLBACK, _replace_unencodable)


class OutputDestination:
    """Destination of UTF-8 bytes; a context manager: a normal exit completes the output, an exception discards it.

    Args:
        text: the bytes are text for people: convert it to the terminal's encoding, and page it on a terminal.
        progress: progress display to hide when output and progress may appear on the same screen.
        defers_errors: for commands that change files: if the output cannot be written, continue and report the error at
            the end.
    """

    def __init__(
        self,
        settings: GlobalSettings,
        *,
        text: bool,
        inputs: Iterable[str] = (),
        page: bool = True,
        defers_errors: bool = False,
        progress: ProgressDisplay | None = None,
    ) -> None:
        self._defers_errors = defers_errors
        self.write_error: OSError | None = None
        """First write error; nothing more is written after it. None = no error."""
        self._encoding: str | None = None
        self._pager: subprocess.Popen[bytes] | None = None
        self._progress = progress
        self._ascii = settings.ascii
        self._uses_pager = text and page and settings.pager
        self._temporary: Path | None = None
        self._target: Path | None = None
        self._can_replace = False
        self.has_written = False
        """True if anything was written."""
        if settings.output not in (None, "-"):
            self.name = str(settings.output)
            self._stream = self._open_file(self.name, settings.overwrite, list(inputs))
        else:
            self.name = "standard output"
            self._stream = self._open_standard_output(text)
        self.columns = _terminal_columns() if text and self.isatty() else None
        """Width for wrapping lines of text; None = do not wrap."""

    def _open_file(self, name: str, overwrite: bool, inputs: list[str]) -> IO[bytes]:
        import tempfile
        from pathlib import Path

        target = Path(name)
        with name_os_errors(target):
            exists = os.path.lexists(target)
            status = target.stat() if target.exists() else None
            if status is not None and not stat.S_ISREG(status.st_mode):
                return target.open("wb")  # a device or a pipe cannot be renamed onto
            if status is not None and any(_is_input(name, target, status) for name in inputs):
                raise RefusedError(f"{target} is an input file; inputs are never overwritten")
            if exists and not overwrite:
                raise RefusedError(f"{target} exists; use --overwrite to replace it")
            self._can_replace = overwrite
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".tmp")
        self._temporary, self._target = Path(name), target
        return os.fdopen(handle, "wb")

    def _open_standard_output(self, text: bool) -> IO[bytes]:
        if sys.stdout is None:
            raise InputOutputError("standard output is closed")
        encoding = codecs.lookup(sys.stdout.encoding or "utf-8").name
        self._encoding = encoding if text and encoding != "utf-8" else None
        return sys.stdout.buffer

    def _hide_progress_and_start_pager(self) -> None:
        """Hide the progress line and start the pager before the first bytes for standard output."""
        self.has_written = True
        if self.name != "standard output":
            return
        if self._progress is not None and (self.isatty() or _is_pipe()):
            self._progress.disable_line()
        if self._uses_pager and self.isatty():
            self._pager = _start_pager()
        if self._pager is not None and self._pager.stdin is not None:
            self._stream = self._pager.stdin

    @property
    def ascii(self) -> bool:
        """True if box-drawing characters must be avoided, by the user's choice or because they cannot be shown."""
        from binlogtool.terminal.escape_and_fold_text import can_draw_boxes

        return self._ascii or not can_draw_boxes(self._encoding or "utf-8", self.isatty())

    def write(self, data: bytes | memoryview) -> None:
        """Write all bytes.

        Raises:
            InputOutputError: the disk is full, or a similar error.
            BrokenPipeError: the reader closed the pipe.
        """
        if not self.has_written:
            self._hide_progress_and_start_pager()
        if self._encoding:
            data = bytes(data).decode("utf-8").encode(self._encoding, _ENCODE_FALLBACK)
        self._run_write(lambda: self._stream.write(data))

    def write_line(self, text: str, *, fits: bool = False) -> None:
        """Write one line of escaped text, wrapped to the width of the terminal. fits: do not wrap it."""
        if self.columns is not None and not fits:
            from binlogtool.terminal.escape_and_fold_text import fold_line

            text = "\n".join(fold_line(text, self.columns))
        self.write(f"{text}\n".encode("utf-8", "backslashreplace"))

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines without wrapping, many at a time."""
        remaining = iter(lines)
        while chunk := list(islice(remaining, _LINES_PER_WRITE)):
            self.write(("\n".join(chunk) + "\n").encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Flush to the operating system; raises as `write` does."""
        self._run_write(self._stream.flush)

    def _run_write(self, action: Callable[[], object]) -> None:
        if self.write_error is not None:
            return
        try:
            action()
        except OSError as error:
            if self._defers_errors:
                self.write_error = error
            else:
                raise self._to_exception(error) from error

    def _to_exception(self, error: OSError) -> Exception:
        """Return the exception to raise: a closed pipe unchanged (see `cli.entry_point`), other errors as
        InputOutputError.
        """
        return error if isinstance(error, BrokenPipeError) else InputOutputError(f"{self.name}: {error.strerror}")

    def sleep_unless_reader_closes(self, seconds: float) -> None:
        """Sleep, but stop when the reader closes the pipe.

        Raises:
            BrokenPipeError: the reader closed the pipe.
        """
        import select

        poll = select.poll()
        try:
            poll.register(self._stream.fileno(), 0)
        except (OSError, ValueError):  # an output without a descriptor
            time.sleep(seconds)
            return
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(1000 * seconds)):
            raise BrokenPipeError

    def isatty(self) -> bool:
        """Return True if a terminal shows the output, possibly through a pager."""
        return self._target is None and self._temporary is None and sys.stdout is not None and sys.stdout.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
                if self.write_error is not None:
                    raise self._to_exception(self.write_error)
                self._publish_file()
        finally:
            self._release_resources()

    def _publish_file(self) -> None:
        if self._temporary is None or self._target is None:
            return
        try:
            os.fsync(self._stream.fileno())
            self._temporary.chmod(0o666 & ~_read_umask())
            if self._can_replace:
                self._temporary.replace(self._target)
            else:
                rename_without_replacing(self._temporary, self._target)
        except FileExistsError:
            text = "was created by another process meanwhile and was not replaced; use --overwrite to replace it"
            raise RefusedError(f"{self._target}: {text}") from None
        except OSError as error:
            raise InputOutputError(f"{self.name}: {error.strerror}") from error
        self._temporary = None

    def _release_resources(self) -> None:
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
        if self._pager is not None:
            with suppress(BrokenPipeError):
                self._stream.close()
            self._pager.wait()
        elif self.name != "standard output":
            with suppress(OSError):  # the device refused data before, which was reported
                self._stream.close()


def _is_input(name: str, target: Path, status: os.stat_result) -> bool:
    """Return True if the input `name` is this file, or its directory, as the file may be a member of the log there."""
    try:
        input_status = os.stat(name)
        return os.path.samestat(input_status, status) or os.path.samestat(input_status, target.resolve().parent.stat())
    except OSError:
        return False


def _is_pipe() -> bool:
    """Return True if standard output is a pipe, whose reader may write to the same screen."""
    try:
        return sys.stdout is not None and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _terminal_columns() -> int:
    from binlogtool.terminal.escape_and_fold_text import terminal_columns

    return terminal_columns()


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _start_pager() -> subprocess.Popen[bytes] | None:
    import shlex
    import subprocess

    words = shlex.split(os.environ.get("BINLOGTOOL_PAGER") or os.environ.get("PAGER") or "less")
    environment = {"LESS": "FRX", **os.environ}
    if not words or words[0] == "cat":
        return None
    try:
        return subprocess.Popen(words, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return None
