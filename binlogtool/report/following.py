"""Suggest the next command, ready to be pasted, with the options that reading the log needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from binlogtool import formats
from binlogtool.findings import Finding, Severity
from binlogtool.formats.repair_rules import HELPLESS
from binlogtool.log.rotated import later, newest
from binlogtool.log.source import is_url
from binlogtool.recovery.corrected import WAY
from binlogtool.recovery.refusals import CUTTABLE, EMPTY, LIST, UNFINISHED, WHOLE_LOG
from binlogtool.recovery.report import FileReport, Report, SetReport
from binlogtool.report.words import command

if TYPE_CHECKING:
    from binlogtool.recovery.plan import Asked, FilePlan, Plan
    from binlogtool.recovery.replay_result import Replayed

_UNREAD = {"hexdump-annotate": ("--redo",), "dump": ("--redo",)}
"""Options of the reading that a command does not have."""
_KEY = ("--keyfile", "KEYFILE")
"""Nobody but the user knows where that is."""
_LIST_IDS = ("missing-member", "meta-mismatch", "extra-member")


class Given(msgspec.Struct, frozen=True):
    """The command-line options that say how the log is read: (option, value)."""

    options: tuple[tuple[str, str], ...] = ()

    def also(self, option: str, value: str | None) -> Given:
        """Return the options with one more; unchanged if its value is None."""
        return self if value is None else Given((*self.options, (option, plain_path(value))))

    def next(self, name: str, *words: str, path: str | None = None) -> str:
        """Return a command line for a POSIX shell that reads the log as this run did."""
        kept = [text for pair in self.options if pair[0] not in _UNREAD.get(name, ()) for text in pair]
        return command(name, *kept, *words, *(() if path is None else (plain_path(path),)))


def plain_path(path: str) -> str:
    """Return the path in a form that is never taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def _short(path: str) -> str:
    """Return the path relative to the working directory where that is shorter."""
    near = os.path.relpath(path)
    return near if not near.startswith("..") else path


NOTHING_GIVEN = Given()


# -- after verify ------------------------------------------------------------------------------------------------------


def after_verify(report: Report, given: Given = NOTHING_GIVEN) -> str | None:
    """Return the command that shows or repairs the first serious finding; None for standard input, which cannot be
    read again.
    """
    files = [file for file in report.files if file.path != "-"]
    for file in files:
        errors = [f for f in file.findings if f.severity is Severity.ERROR and f.offset is not None]
        if errors and file.size:
            return _shown(file.path, file.size, errors[0].offset or 0, given)
    for part in report.sets:
        if any(f.severity is Severity.ERROR for f in part.findings) and not is_url(part.path):
            return _after_set(part, given)
    for file in files:
        if file.encrypted:
            return given.next("verify", *_KEY, path=file.path)
    for file in files:
        tail = _tail(file)
        if not is_url(file.path) and tail is not None and _goes_on(file, report.sets):
            if not file.records:  # truncation would leave nothing, and is refused
                return _shown(file.path, file.size, tail.offset or 0, given)
            return given.next("truncate-to-durable", path=_log_of(file, report.sets))
    return None


def _shown(path: str, size: int, offset: int, given: Given) -> str:
    """Return the command that shows an offset; for an offset past the end, the last byte."""
    return given.next("hexdump-annotate", "--at", hex(min(offset, size - 1)), path=path)


def _after_set(part: SetReport, given: Given) -> str:
    """Return the command that fixes a list of files; for other errors the one that predicts what the server does."""
    if (
        _list_helps(f for f in part.findings if f.severity is Severity.ERROR)
        and formats.get(part.format).repair.mend is not None
    ):
        return given.next("truncate-to-durable", "--fix-meta", path=part.path)
    return given.next("replay-dry-run", path=part.path)


def _list_helps(errors: Iterable[Finding]) -> bool:
    """Return True if a list of files can be corrected; a line whose file is missing between others is never removed."""
    of_lists = [found for found in errors if found.id in _LIST_IDS]
    return bool(of_lists) and not any(found.facts.get("between") for found in of_lists)


def _tail(file: FileReport) -> Finding | None:
    return next((one for one in file.findings if one.id in ("torn-tail", "garbage-tail")), None)


def _goes_on(file: FileReport, sets: Sequence[SetReport]) -> bool:
    """Return True if the server would append to this file."""
    part = _set_of(file, sets)
    return part is None or later(os.path.relpath(file.path, part.path), newest(part.members)) is None


def _set_of(file: FileReport, sets: Sequence[SetReport]) -> SetReport | None:
    return next((one for one in sets if file.path in {os.path.join(one.path, name) for name in one.members}), None)


def _log_of(file: FileReport, sets: Sequence[SetReport]) -> str:
    """Return the path that names the log: the directory of a set, else the file."""
    part = _set_of(file, sets)
    return file.path if part is None else part.path


# -- after a replay ----------------------------------------------------------------------------------------------------


def after_replay(one: Replayed, given: Given = NOTHING_GIVEN) -> Iterator[str]:
    """Yield the commands that show the stop, and that repair by truncation or by a corrected list of files."""
    if one.clean:
        return
    if one.encrypted:
        yield given.next("replay-dry-run", *_KEY, path=one.path)
        return
    if one.stop is not None and one.stop.offset is not None and (size := _size(one.stop.file, one.stop.offset)):
        yield _shown(one.stop.file, size, one.stop.offset, given)
    if is_url(one.path) or one.policy != "server":
        return
    errors = [found for _, found in one.findings if found.severity is Severity.ERROR]
    ids = {found.id for found in errors}
    barred = "gap-in-sequence" in ids or any(found.facts.get(HELPLESS) for _, found in one.findings)
    if _list_helps(errors) and formats.get(one.format).repair.mend is not None:
        yield given.next("truncate-to-durable", "--fix-meta", path=one.path)
    elif not barred and any(_cuts_help(found.id, found.offset) for _, found in one.findings):
        yield given.next("truncate-to-durable", path=one.path)


def _size(path: str, offset: int) -> int:
    """Return the size of a file; of a path that is not a local file, a size that includes the offset."""
    return os.path.getsize(path) if os.path.isfile(path) else offset + 1


def _cuts_help(id_: str, offset: int | None) -> bool:
    return offset is not None and id_ in (*CUTTABLE, "damaged-range", "checksum-mismatch", "valid-after-damage")


# -- after a plan ------------------------------------------------------------------------------------------------------


def after_plan(plan: Plan, given: Given = NOTHING_GIVEN, *, saved: str | None = None) -> str | None:
    """Return the command that applies a plan; for a refused one, what else can be done.

    Args:
        plan_path: The file that the plan was saved in.
    """
    if not plan.target:
        return None
    if plan.refused:
        return _after_refusal(plan, given)
    if not plan.changes or plan.asked.copy:
        return None
    if saved is not None:
        return given.next("truncate-to-durable", "--apply-plan", plain_path(saved))
    return given.next("truncate-to-durable", "--apply", *_asked(plan.asked), path=_short(plan.target))


_FLAGS = ("allow_discard_valid", "allow_empty_result", "fix_meta", "write_close_marker", "transactions")


def _asked(asked: Asked) -> list[str]:
    """Return the options that the plan was made with."""
    words = [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(asked, name)]
    words += [] if asked.max_loss is None else ["--max-loss", str(asked.max_loss)]
    return words + ([] if asked.max_loss_records is None else ["--max-loss-records", str(asked.max_loss_records)])


def _after_refusal(plan: Plan, given: Given) -> str:
    """Return another command than the one that was refused."""
    said = " ".join(plan.reasons)
    if plan.unread:
        return given.next("truncate-to-durable", *_KEY, path=_short(plan.target))
    if (file := _correctable(plan)) is not None:
        return given.next("truncate-to-durable", "--to-file", _free(file), "--keep-after-damage", path=file)
    if UNFINISHED in said:
        return given.next("truncate-to-durable", "--apply", path=_short(plan.target))
    if "changed-while-read" in said:
        return given.next("verify", "--live", path=_short(plan.target))
    if WHOLE_LOG in said and not os.path.isdir(plan.target):
        return given.next("truncate-to-durable", path=_short(os.path.dirname(plan.target)))
    if LIST in said and not plan.asked.fix_meta:
        return given.next("truncate-to-durable", "--fix-meta", path=_short(plan.target))
    if plan.about is None:
        return _forced(plan, given)
    return _about_file(plan, plan.about, given)


def _correctable(plan: Plan) -> str | None:
    """Return the first file that a copy with a corrected bit can be made of, according to the plan."""
    told = [text for text in (*plan.reasons, *plan.notes) if WAY in text and not plan.asked.salvage]
    return next((one.path for one in plan.files for text in told if text.startswith(f"{one.path}: ")), None)


def _forced(plan: Plan, given: Given) -> str:
    """Return the command that predicts a start with the server's force option."""
    return given.next("replay-dry-run", "--policy", "force", path=_short(plan.target))


def _about_file(plan: Plan, file: FilePlan, given: Given) -> str:
    """Return a command for the file that the plan is refused for."""
    if file.size and (EMPTY in plan.reasons[0] or file.durable_end is None):
        return _shown(file.path, file.size, file.durable_end or 0, given)
    if plan.copyable is not None:
        return given.next("truncate-to-durable", "--to-file", _free(file.path), "--keep-after-damage", path=file.path)
    whole = formats.get(plan.format).repair.no_salvage() is not None
    if file.action == "none" or "would not be clean" in plan.reasons[0] or whole:
        return _forced(plan, given)
    return given.next("dump", "-O", "jsonl", "--on-damage", "skip", path=file.path)


def _free(path: str) -> str:
    """Return an unused name for the salvaged copy, in the working directory."""
    base = f"{os.path.basename(path)}.salvaged"
    tries = (plain_path(base), *(plain_path(f"{base}-{number}") for number in range(2, 100)))
    return next((name for name in tries if not os.path.lexists(name)), plain_path(base))


def reading(values: Mapping[str, object], format_: str) -> Given:
    """Return the options of a run that say how the log is read.

    Args:
        parameters: The values of the command's options, by parameter name.
    """
    named: list[tuple[str, object]] = [("--format", None if format_ == "auto" else format_)]
    named += [
        (f"--{name.replace('_', '-')}", values.get(name)) for name in ("redo", "keyfile", "keyfile_secret", "schema")
    ]
    return Given(tuple((option, plain_path(str(value))) for option, value in named if value is not None))
