"""Errors: reasons why the work cannot continue. Bad *data* is never an exception; it is a `Finding`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class BinlogtoolError(Exception):
    """Base of every error that a user may meet; `exit_code` is the exit status of the command."""

    exit_code = 70


class UnknownFormatError(BinlogtoolError):
    """The input is not a known log, or it is a version of a known format that is not supported."""

    exit_code = 3


class InputOutputError(BinlogtoolError):
    """A file, directory, stream or the environment cannot be used."""

    exit_code = 4


class FileVanishedError(InputOutputError):
    """The file does not exist, or no longer exists."""


class RefusedError(BinlogtoolError):
    """A safety rule forbids the work (live file, plan mismatch, loss bound, existing output)."""

    exit_code = 5


class LimitError(BinlogtoolError):
    """A limit (memory, time, record size) ended the work early."""

    exit_code = 6


class RepairFailedError(BinlogtoolError):
    """A repair was written but failed its check; the message says whether the original was restored."""

    exit_code = 7


class UsageError(BinlogtoolError):
    """The request contradicts itself or names something that does not exist."""

    exit_code = 2


class MissingExtraError(InputOutputError):
    """An optional dependency is missing; the message names the command that installs it."""


@contextmanager
def name_os_errors(path: object, what: str = "", *, by_file: bool = False) -> Iterator[None]:
    """Raise an OSError of the statements inside as InputOutputError with the path, what was impossible, and the reason.

    by_file: name the file that the OSError names; `path` if it names none.
    """
    try:
        yield
    except OSError as error:
        name = error.filename if by_file and error.filename else path
        reason = f"{what}: {error.strerror or error}" if what else f"{error.strerror or error}"
        raise InputOutputError(f"{name}: {reason}") from error


def format_name_suggestions(name: str, known_names: Iterable[str], max_count: int = 3) -> str:
    """Return the known names that begin with `name` or are most like it, as the end of a message; "" if none.

    Where none is like it as a whole, names whose first word is: `msql` and `mysql-binlog`.
    """
    from difflib import get_close_matches

    names_by_casefold = {one.casefold(): one for one in sorted(known_names, reverse=True)}
    wanted = name.casefold()
    longer = sorted(one for one in names_by_casefold if wanted and one.startswith(wanted))
    found = dict.fromkeys([*longer, *get_close_matches(wanted, names_by_casefold, max_count)])
    if not found:
        first_words = {one.partition("-")[0]: one for one in names_by_casefold if "-" in one}
        found = dict.fromkeys(first_words[word] for word in get_close_matches(wanted, first_words, max_count))
    listed = [names_by_casefold[one] for one in found][:max_count]
    return f"; did you mean {' or '.join(listed)}?" if listed else ""


def join_names(names: Iterable[str], max_count: int = 8) -> str:
    """Join names with commas; of more than `max_count`, say how many others there are."""
    listed = list(names)
    more = f" and {len(listed) - max_count:,} more" if len(listed) > max_count else ""
    return ", ".join(listed[:max_count]) + more


def unknown_name_error(noun: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that does not exist; it lists similar names, otherwise all names."""
    names = tuple(known)
    suggestion = format_name_suggestions(name, names) or f"; known: {', '.join(names)}"
    return UsageError(f"there is no {noun} {name!r}{suggestion}")
