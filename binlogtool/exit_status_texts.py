"""Texts about the exit statuses: for `explain`, the manual and completion."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class StatusExplanation(NamedTuple):
    """The text about one exit status."""

    meaning: str
    causes: str
    action: str


STATUSES = {
    "0": StatusExplanation(
        "Done; no problem was found (verify: no finding at or above --fail-on).",
        "The work was completed; a repair was written and verified clean. A reading command whose output is "
        "closed early "
        "(| head) ends with this status, too, unless it had found something by then. A log that is still written may "
        "end inside a transaction: a warning says so, and verify whether that is a fault.",
        "Nothing.",
    ),
    "1": StatusExplanation(
        "A problem was found (verify: a finding at or above --fail-on), or a plan would be refused.",
        "The help of each command has its own meaning: damage or errors in the records that were read, a server that "
        "would not start, records that it would reject or lose, a conversion that is incomplete, a repair "
        "that would be "
        "refused, a comparison with differences.",
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
        "A bug in binlogtool. Reading commands have changed nothing; an aborted repair leaves the "
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


_READ_STATUSES = ("Done; no damage and no errors in what was read.", "Damage or errors in what was read; see stderr.")
COMMAND_STATUSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    "verify": ("No finding at or above --fail-on.", "A finding at or above --fail-on."),
    "diagnose": (
        "No problem was found, and no loss is expected.",
        "A problem was found: damage, a server that does not start, or records that it would lose.",
    ),
    "truncate-to-durable": (
        "The plan can be applied, there is nothing to remove, or the repair was made and verified.",
        "The plan would be refused; the reasons are listed. Nothing was changed.",
    ),
    "undo": (
        "The undo can be applied, or was applied.",
        "The undo would be refused; the reasons are listed. Nothing was changed.",
    ),
    "replay-dry-run": (
        "The server would start, and apply or skip every record as it should.",
        "The server would stop, reject records or lose some without an error; or --compare found a difference.",
    ),
    "dump": _READ_STATUSES,
    "rows": _READ_STATUSES,
    "stats": _READ_STATUSES,
    "hexdump-annotate": (
        "Done; no damage and no errors in what was read. With --diff: the logs are equal.",
        "Damage or errors in what was read. With --diff: the logs differ.",
    ),
    "flashback": (
        "The script is complete.",
        "The script was not written, or does not restore everything; stderr names the reason.",
    ),
    "convert": (
        "The output is complete; damage that --on-damage skip left out was reported.",
        "The output was not written, or lacks a part of the input; stderr names the reason.",
    ),
})  # fmt: skip
"""Command -> its meanings of the statuses 0 and 1. Other commands end with 0 or with an error."""


def list_command_statuses(command: str) -> list[tuple[str, str]]:
    """Return (status, meaning) pairs for the help of a command."""
    done, problem = COMMAND_STATUSES.get(command, ("Done.", ""))
    own = {"0": done, "1": problem}
    pairs = [(code, own.get(code, known.meaning)) for code, known in STATUSES.items()]
    return [(code, meaning) for code, meaning in pairs if meaning]


def find_status_key(text: str) -> str | None:
    """Return the key of an exit status in `STATUSES`; None if the status is unknown."""
    return next((key for key in STATUSES if text in key.split(", ")), None)
