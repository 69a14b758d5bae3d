"""Texts about the exit statuses: for `explain`, the manual and completion."""

from __future__ import annotations

from typing import NamedTuple


class StatusExplanation(NamedTuple):
    """The text about one exit status."""

    meaning: str
    causes: str
    action: str


STATUSES = {
    "0": StatusExplanation(
        "Done; no finding at or above --fail-on.",
        "The work was completed; a repair was written and verified clean. A reading command whose output is "
        "closed early "
        "(| head) ends with this status, too, unless it had found something by then. A log that is still written may "
        "end inside a transaction: a warning says so, and verify whether that is a fault.",
        "Nothing.",
    ),
    "1": StatusExplanation(
        "Findings at or above --fail-on, or a plan that would lose data.",
        "verify: damage, or whatever --fail-on asks for. dump: errors in what was read. replay-dry-run: the server "
        "would reject, lose or stop. truncate-to-durable, undo: a plan that would be refused. A comparison that "
        "differs.",
        "Read the findings (binlogtool explain ID) and the line `next:`.",
    ),
    "2": StatusExplanation(
        "Usage error.",
        "An option, a value or a name that does not exist, or options that exclude each other; also in the "
        "configuration file or the environment. Nothing was read or written.",
        "The line on standard error names it; binlogtool COMMAND --help lists the valid ones.",
    ),
    "3": StatusExplanation(
        "Not a known log, or a known format in an unsupported version.",
        "The content is not that of a known log, whatever the name of the file; or a log is given "
        "where an undo file is expected, or vice versa.",
        "`binlogtool formats` lists the known formats; --format NAME states the format if the header is damaged.",
    ),
    "4": StatusExplanation(
        "Input, output or environment error.",
        "A file cannot be opened, read or written; the disk is full; an extra that the command needs is not installed.",
        "The line on standard error names the file and the system's reason. Nothing is half-written.",
    ),
    "5": StatusExplanation(
        "Refused by a safety rule.",
        "A write that could do harm: the log is in use, is a link or changed while it was read, complete records would "
        "be lost, a plan or an undo file no longer matches, there is no terminal for the prompt, or an "
        "output exists already.",
        "Nothing was changed. The line on standard error names the rule; follow it, do not work around it.",
    ),
    "6": StatusExplanation(
        "Incomplete: a limit (memory, time, record size) ended the work early.",
        "--timeout, --max-duration, --max-memory, --max NAME=VALUE; an encrypted log without its key.",
        "The output is valid as far as it goes. Run it again with the named limit raised.",
    ),
    "7": StatusExplanation(
        "A write was made, its check failed, and the original was restored.",
        "What was written did not verify clean: a failing disk, or a bug in binlogtool.",
        "The files are as before. Check the disk; report it with the output of --debug.",
    ),
    "70": StatusExplanation(
        "Internal error: a bug.",
        "Something that must not happen. Reading commands have changed nothing; an aborted repair leaves the "
        "old file or the new one.",
        "Report it with the file that the last line names.",
    ),
    "130, 143": StatusExplanation(
        "Interrupted, terminated; nothing is half-written.",
        "Ctrl-C, or SIGTERM from a service manager.",
        "Run it again; the next --apply finishes an interrupted repair of several files.",
    ),
}
"""Exit status as text -> its texts; the two of signals share an entry."""


def find_status_key(text: str) -> str | None:
    """Return the key of an exit status in `STATUSES`; None if the status is unknown."""
    return next((key for key in STATUSES if text in key.split(", ")), None)
