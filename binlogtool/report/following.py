"""Suggest the next command, ready to be pasted, with the options that reading the log needs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from binlogtool import formats
from binlogtool.findings import Finding, Severity
from binlogtool.formats.repair_rules import TRUNCATION_USELESS
from binlogtool.log.rotated import find_later, find_newest
from binlogtool.log.source import is_url
from binlogtool.recovery.corrected import FLIPPED_BIT_ADVICE
from binlogtool.recovery.refusals import CUTTABLE, EMPTY_RESULT, LIST_FIX_OPTION, UNFINISHED_ADVICE, WHOLE_LOG_ADVICE
from binlogtool.recovery.report import FileReport, Report, SetReport
from binlogtool.report.words import format_command

if TYPE_CHECKING:
    from binlogtool.recovery.plan import FilePlan, RepairPlan, RepairPolicy
    from binlogtool.recovery.replay_result import ReplayResult

_UNSUPPORTED_OPTIONS = {"hexdump-annotate": ("--redo",), "dump": ("--redo",)}
"""Options of the reading that a command does not have."""
_KEY_OPTION = ("--keyfile", "KEYFILE")
"""Nobody but the user knows where that is."""
_LIST_IDS = ("missing-member", "meta-mismatch", "extra-member")


class GivenReadOptions(msgspec.Struct, frozen=True):
    """The command-line options that say how the log is read: (option, value)."""

    options: tuple[tuple[str, str], ...] = ()

    def with_option(self, option: str, value: str | None) -> GivenReadOptions:
        """Return the options with one more; unchanged if its value is None."""
        return self if value is None else GivenReadOptions((*self.options, (option, guard_leading_dash(value))))

    def make_command(self, name: str, *words: str, path: str | None = None) -> str:
        """Return a command line for a POSIX shell that reads the log as this run did."""
        kept = [text for pair in self.options if pair[0] not in _UNSUPPORTED_OPTIONS.get(name, ()) for text in pair]
        return format_command(name, *kept, *words, *(() if path is None else (guard_leading_dash(path),)))


def guard_leading_dash(path: str) -> str:
    """Return the path in a form that is never taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def _shorten_path(path: str) -> str:
    """Return the path relative to the working directory where that is shorter."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path


NO_READ_OPTIONS = GivenReadOptions()


# -- after verify ------------------------------------------------------------------------------------------------------


def suggest_after_verify(report: Report, read_options: GivenReadOptions = NO_READ_OPTIONS) -> str | None:
    """Return the command that shows or repairs the first serious finding; None for standard input, which cannot be
    read again.
    """
    files = [file for file in report.files if file.path != "-"]
    for file in files:
        errors = [f for f in file.findings if f.severity is Severity.ERROR and f.offset is not None]
        if errors and file.size:
            return _make_hexdump_command(file.path, file.size, errors[0].offset or 0, read_options)
    for set_report in report.sets:
        if any(f.severity is Severity.ERROR for f in set_report.findings) and not is_url(set_report.path):
            return _suggest_for_set(set_report, read_options)
    for file in files:
        if file.is_encrypted:
            return read_options.make_command("verify", *_KEY_OPTION, path=file.path)
    for file in files:
        tail = _find_torn_tail(file)
        if not is_url(file.path) and tail is not None and _is_appended_to(file, report.sets):
            if not file.records:  # truncation would leave nothing, and is refused
                return _make_hexdump_command(file.path, file.size, tail.offset or 0, read_options)
            return read_options.make_command("truncate-to-durable", path=_find_log_path(file, report.sets))
    return None


def _make_hexdump_command(path: str, size: int, offset: int, read_options: GivenReadOptions) -> str:
    """Return the command that shows an offset; for an offset past the end, the last byte."""
    return read_options.make_command("hexdump-annotate", "--at", hex(min(offset, size - 1)), path=path)


def _suggest_for_set(set_report: SetReport, read_options: GivenReadOptions) -> str:
    """Return the command that fixes a list of files; for other errors the one that predicts what the server does."""
    if (
        _can_fix_list(f for f in set_report.findings if f.severity is Severity.ERROR)
        and formats.load_format(set_report.format).repair.fix_files is not None
    ):
        return read_options.make_command("truncate-to-durable", "--fix-meta", path=set_report.path)
    return read_options.make_command("replay-dry-run", path=set_report.path)


def _can_fix_list(errors: Iterable[Finding]) -> bool:
    """Return True if a list of files can be corrected; a line whose file is missing between others is never removed."""
    list_errors = [found for found in errors if found.id in _LIST_IDS]
    return bool(list_errors) and not any(found.facts.get("between") for found in list_errors)


def _find_torn_tail(file: FileReport) -> Finding | None:
    return next((one for one in file.findings if one.id in ("torn-tail", "garbage-tail")), None)


def _is_appended_to(file: FileReport, sets: Sequence[SetReport]) -> bool:
    """Return True if the server would append to this file."""
    set_report = _find_set(file, sets)
    return (
        set_report is None
        or find_later(os.path.relpath(file.path, set_report.path), find_newest(set_report.members)) is None
    )


def _find_set(file: FileReport, sets: Sequence[SetReport]) -> SetReport | None:
    return next((one for one in sets if file.path in {os.path.join(one.path, name) for name in one.members}), None)


def _find_log_path(file: FileReport, sets: Sequence[SetReport]) -> str:
    """Return the path that names the log: the directory of a set, else the file."""
    set_report = _find_set(file, sets)
    return file.path if set_report is None else set_report.path


# -- after a replay ----------------------------------------------------------------------------------------------------


def suggest_after_replay(replay: ReplayResult, read_options: GivenReadOptions = NO_READ_OPTIONS) -> Iterator[str]:
    """Yield the commands that show the stop, and that repair by truncation or by a corrected list of files."""
    if replay.is_clean:
        return
    if replay.is_encrypted:
        yield read_options.make_command("replay-dry-run", *_KEY_OPTION, path=replay.path)
        return
    if (
        replay.stop is not None
        and replay.stop.offset is not None
        and (size := _get_size(replay.stop.file, replay.stop.offset))
    ):
        yield _make_hexdump_command(replay.stop.file, size, replay.stop.offset, read_options)
    if is_url(replay.path) or replay.policy != "server":
        return
    errors = [found for _, found in replay.findings if found.severity is Severity.ERROR]
    ids = {found.id for found in errors}
    is_unrepairable = "gap-in-sequence" in ids or any(
        found.facts.get(TRUNCATION_USELESS) for _, found in replay.findings
    )
    if _can_fix_list(errors) and formats.load_format(replay.format).repair.fix_files is not None:
        yield read_options.make_command("truncate-to-durable", "--fix-meta", path=replay.path)
    elif not is_unrepairable and any(_can_truncate(found.id, found.offset) for _, found in replay.findings):
        yield read_options.make_command("truncate-to-durable", path=replay.path)


def _get_size(path: str, offset: int) -> int:
    """Return the size of a file; of a path that is not a local file, a size that includes the offset."""
    return os.path.getsize(path) if os.path.isfile(path) else offset + 1


def _can_truncate(id_: str, offset: int | None) -> bool:
    return offset is not None and id_ in (*CUTTABLE, "damaged-range", "checksum-mismatch", "valid-after-damage")


# -- after a plan ------------------------------------------------------------------------------------------------------


def suggest_after_plan(
    plan: RepairPlan, read_options: GivenReadOptions = NO_READ_OPTIONS, *, plan_path: str | None = None
) -> str | None:
    """Return the command that applies a plan; for a refused one, what else can be done.

    Args:
        plan_path: The file that the plan was saved in.
    """
    if not plan.target:
        return None
    if plan.refused:
        return _suggest_after_refusal(plan, read_options)
    if not plan.changes or plan.policy.copy:
        return None
    if plan_path is not None:
        return read_options.make_command("truncate-to-durable", "--apply-plan", guard_leading_dash(plan_path))
    return read_options.make_command(
        "truncate-to-durable", "--apply", *_format_policy(plan.policy), path=_shorten_path(plan.target)
    )


_POLICY_FLAGS = ("allow_discard_valid", "allow_empty_result", "fix_meta", "write_close_marker", "transactions")


def _format_policy(policy: RepairPolicy) -> list[str]:
    """Return the options that the plan was made with."""
    words = [f"--{name.replace('_', '-')}" for name in _POLICY_FLAGS if getattr(policy, name)]
    words += [] if policy.max_loss is None else ["--max-loss", str(policy.max_loss)]
    return words + ([] if policy.max_loss_records is None else ["--max-loss-records", str(policy.max_loss_records)])


def _suggest_after_refusal(plan: RepairPlan, read_options: GivenReadOptions) -> str:
    """Return another command than the one that was refused."""
    reasons = " ".join(plan.reasons)
    if plan.has_encrypted_file:
        return read_options.make_command("truncate-to-durable", *_KEY_OPTION, path=_shorten_path(plan.target))
    if (file := _find_correctable(plan)) is not None:
        return read_options.make_command(
            "truncate-to-durable", "--to-file", _find_free_name(file), "--keep-after-damage", path=file
        )
    if UNFINISHED_ADVICE in reasons:
        return read_options.make_command("truncate-to-durable", "--apply", path=_shorten_path(plan.target))
    if "changed-while-read" in reasons:
        return read_options.make_command("verify", "--live", path=_shorten_path(plan.target))
    if WHOLE_LOG_ADVICE in reasons and not os.path.isdir(plan.target):
        return read_options.make_command("truncate-to-durable", path=_shorten_path(os.path.dirname(plan.target)))
    if LIST_FIX_OPTION in reasons and not plan.policy.fix_meta:
        return read_options.make_command("truncate-to-durable", "--fix-meta", path=_shorten_path(plan.target))
    if plan.blocking_file is None:
        return _make_force_command(plan, read_options)
    return _suggest_for_file(plan, plan.blocking_file, read_options)


def _find_correctable(plan: RepairPlan) -> str | None:
    """Return the first file that a copy with a corrected bit can be made of, according to the plan."""
    texts = [text for text in (*plan.reasons, *plan.notes) if FLIPPED_BIT_ADVICE in text and not plan.policy.salvage]
    return next((one.path for one in plan.files for text in texts if text.startswith(f"{one.path}: ")), None)


def _make_force_command(plan: RepairPlan, read_options: GivenReadOptions) -> str:
    """Return the command that predicts a start with the server's force option."""
    return read_options.make_command("replay-dry-run", "--policy", "force", path=_shorten_path(plan.target))


def _suggest_for_file(plan: RepairPlan, file: FilePlan, read_options: GivenReadOptions) -> str:
    """Return a command for the file that the plan is refused for."""
    if file.size and (EMPTY_RESULT in plan.reasons[0] or file.durable_end is None):
        return _make_hexdump_command(file.path, file.size, file.durable_end or 0, read_options)
    if plan.copyable_path is not None:
        return read_options.make_command(
            "truncate-to-durable", "--to-file", _find_free_name(file.path), "--keep-after-damage", path=file.path
        )
    never_salvaged = formats.load_format(plan.format).repair.find_salvage_obstacle() is not None
    if file.action == "none" or "would not be clean" in plan.reasons[0] or never_salvaged:
        return _make_force_command(plan, read_options)
    return read_options.make_command("dump", "-O", "jsonl", "--on-damage", "skip", path=file.path)


def _find_free_name(path: str) -> str:
    """Return an unused name for the salvaged copy, in the working directory."""
    base = f"{os.path.basename(path)}.salvaged"
    candidates = (guard_leading_dash(base), *(guard_leading_dash(f"{base}-{number}") for number in range(2, 100)))
    return next((name for name in candidates if not os.path.lexists(name)), guard_leading_dash(base))


def collect_read_options(parameters: Mapping[str, object], format_: str) -> GivenReadOptions:
    """Return the options of a run that say how the log is read.

    Args:
        parameters: The values of the command's options, by parameter name.
    """
    options: list[tuple[str, object]] = [("--format", None if format_ == "auto" else format_)]
    options += [
        (f"--{name.replace('_', '-')}", parameters.get(name))
        for name in ("redo", "keyfile", "keyfile_secret", "schema")
    ]
    return GivenReadOptions(
        tuple((option, guard_leading_dash(str(value))) for option, value in options if value is not None)
    )
