"""Render verify reports, plans and repairs as text and JSON, and suggest the command to run next."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from binlogtool import formats
from binlogtool.core.notify_progress_listener import READABLE_COMPRESSED_SUFFIXES, SkippedFile, strip_compressed_suffix
from binlogtool.core.open_file import detect_file_compression, is_url
from binlogtool.core.resolve_paths import find_newer_file, find_newest_files
from binlogtool.errors import join_names
from binlogtool.exit_status_texts import STATUSES
from binlogtool.findings import (
    BEYOND_LIMITS,
    EXPLANATIONS,
    LIMIT_OPTIONS,
    UNCHECKED_IDS,
    Finding,
    Severity,
    finding_to_value,
)
from binlogtool.format_api.encode_json import encode_document_in_pieces, pick_members
from binlogtool.format_api.format import TRUNCATION_USELESS
from binlogtool.repair.plan_types import (
    CUTTABLE,
    EMPTY_RESULT,
    FLIPPED_BIT_ADVICE,
    LIST_FIX_OPTION,
    UNFINISHED_ADVICE,
    WHOLE_LOG_ADVICE,
    FilePlan,
    RepairPlan,
    RepairResult,
    UndoPlan,
    WrittenFile,
)
from binlogtool.report.format_numbers_and_names import (
    format_command,
    format_count,
    format_finding,
    format_offset,
    format_quantity,
    format_size,
    quote_for_shell,
    render_skipped_files,
    skipped_files_to_json,
)
from binlogtool.terminal.escape_and_fold_text import escape
from binlogtool.verification.verify_report import (
    BYTE_CLASSES,
    FileReport,
    PathFailure,
    Report,
    SetReport,
    SkippedFiles,
    replace_findings,
)

if TYPE_CHECKING:
    from binlogtool.prediction.predict_replay import ReplayResult
    from binlogtool.repair.plan_types import RepairPolicy


# --- Suggested next commands ---

_UNSUPPORTED_OPTIONS = {"hexdump-annotate": ("--redo",), "dump": ("--redo",)}
"""Command -> read options that it does not have."""
KEY_OPTION = ("--keyfile", "KEYFILE")
"""Option with a placeholder for its value: only the user knows where the key file is."""
_LIST_IDS = ("missing-member", "meta-mismatch", "extra-member")


class GivenReadOptions(msgspec.Struct, frozen=True):
    """Command-line options that affect how the log is read, as (option, value) pairs."""

    options: tuple[tuple[str, str], ...] = ()

    def with_option(self, option: str, value: str | None) -> GivenReadOptions:
        """Return the options with one more; unchanged if its value is None."""
        return self if value is None else GivenReadOptions((*self.options, (option, guard_leading_dash(value))))

    def format_command_with_options(self, command_name: str, *words: str, path: str | None = None) -> str:
        """Return a command line for a POSIX shell that reads the log with the same options as this run."""
        kept = [
            text for pair in self.options if pair[0] not in _UNSUPPORTED_OPTIONS.get(command_name, ()) for text in pair
        ]
        return format_command(command_name, *kept, *words, *(() if path is None else (guard_leading_dash(path),)))


def guard_leading_dash(path: str) -> str:
    """Return the path in a form that cannot be taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def _shorten_path(path: str) -> str:
    """Return the path relative to the working directory if that is shorter."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else path


NO_READ_OPTIONS = GivenReadOptions()


# -- after verify ------------------------------------------------------------------------------------------------------


def suggest_after_verify(report: Report, read_options: GivenReadOptions = NO_READ_OPTIONS) -> str | None:
    """Return the command that shows or repairs the first serious finding.

    None for standard input, which cannot be read again.
    """
    files = [file for file in report.files if file.findings and file.path != "-"]
    if any(f.id == "compression-error" and "packed_size" in f.facts for file in files for f in file.findings):
        return None  # the message says to copy the file again
    for file in files:
        errors = [f for f in file.findings if f.severity is Severity.ERROR and f.offset is not None]
        errors = [f for f in errors if not _is_about_names(f) and f.id not in ("unclean-close", *BEYOND_LIMITS)]
        errors.sort(key=lambda found: found.id in _CHANGE_IDS)  # its offset is not that of damage
        if errors and file.size and not strip_compressed_suffix(file.path).endswith((".index", ".state", ".meta")):
            return _make_hexdump_command(file.path, file.size, errors[0].offset or 0, read_options)
    for set_report in report.sets:
        errors = [f for f in _collect_set_findings(set_report, files) if f.severity is Severity.ERROR]
        if errors and not is_url(set_report.path):
            return _suggest_for_set(set_report, errors, report.files, read_options)
    for file in files:
        if file.is_encrypted:
            return read_options.format_command_with_options("verify", *KEY_OPTION, path=file.path)
        if beyond := next((f for f in file.findings if f.id in BEYOND_LIMITS), None):
            return read_options.format_command_with_options("verify", *LIMIT_OPTIONS[beyond.id].split(), path=file.path)
    for file in files:
        tail = next((one for one in file.findings if one.id in ("torn-tail", "garbage-tail")), None)
        is_repairable = not is_url(file.path) and not file.path.endswith(READABLE_COMPRESSED_SUFFIXES)
        if is_repairable and tail is not None and _is_file_server_appends_to(file, report.sets):
            if not file.records:  # truncation would keep no record, and is refused
                return _make_hexdump_command(file.path, file.size, tail.offset or 0, read_options)
            return read_options.format_command_with_options(
                "truncate-to-durable", path=_find_log_path(file, report.sets)
            )
    return None


def _make_hexdump_command(path: str, size: int, offset: int, read_options: GivenReadOptions) -> str:
    """Return the command that shows an offset; for an offset past the end, the last byte."""
    return read_options.format_command_with_options("hexdump-annotate", "--at", hex(min(offset, size - 1)), path=path)


def _collect_set_findings(set_report: SetReport, files: Iterable[FileReport]) -> Iterator[Finding]:
    """Yield the findings about a set, and those about the membership of its files."""
    yield from set_report.findings
    members = {os.path.normpath(os.path.join(set_report.path, name)) for name in set_report.members}
    for file in files:
        if os.path.normpath(file.path) in members:
            yield from filter(_is_about_names, file.findings)


def _suggest_for_set(
    set_report: SetReport, errors: Sequence[Finding], files: Sequence[FileReport], read_options: GivenReadOptions
) -> str:
    """Return the command that corrects a list of files; for a missing or exchanged file, the command that shows the
    steps by hand; for other errors, and for a backup with compressed files, the command that predicts the replay.
    """
    has_compressed = any(
        one.path.endswith(READABLE_COMPRESSED_SUFFIXES) and _find_set(one, (set_report,)) is not None for one in files
    )
    can_fix = not has_compressed and _can_correct_file_list(errors)
    if can_fix and formats.load_format(set_report.format).repair.fix_files is not None:
        return read_options.format_command_with_options("truncate-to-durable", "--fix-meta", path=set_report.path)
    command = "diagnose" if any(map(needs_files_copied_or_renamed, errors)) else "replay-dry-run"
    return read_options.format_command_with_options(command, path=set_report.path)


def needs_files_copied_or_renamed(finding: Finding) -> bool:
    """Return True if files must be copied or renamed: one is missing or is a link, or two are exchanged."""
    is_missing = finding.id == "missing-member" and isinstance(finding.facts.get("missing"), str)
    return is_missing or any(finding.facts.get(name) for name in ("between", "exchanged_with", "irregular"))


def _is_about_names(finding: Finding) -> bool:
    """Return True if a finding about a file is about its name or the list of files, not about its bytes."""
    return "not_in_index" in finding.facts or needs_files_copied_or_renamed(finding)


def _can_correct_file_list(errors: Iterable[Finding]) -> bool:
    """Return True if a list of files can be corrected; the line of a missing file between others is never removed."""
    list_errors = [found for found in errors if found.id in _LIST_IDS]
    return bool(list_errors) and not any(map(needs_files_copied_or_renamed, list_errors))


def _is_file_server_appends_to(file: FileReport, sets: Sequence[SetReport]) -> bool:
    """Return True if the server would append to this file."""
    set_report = _find_set(file, sets)
    return (
        set_report is None
        or find_newer_file(os.path.relpath(file.path, set_report.path), find_newest_files(set_report.members)) is None
    )


def _find_set(file: FileReport, sets: Sequence[SetReport]) -> SetReport | None:
    path = os.path.normpath(strip_compressed_suffix(file.path))
    return next(
        (one for one in sets if path in {os.path.normpath(os.path.join(one.path, name)) for name in one.members}), None
    )


def _find_log_path(file: FileReport, sets: Sequence[SetReport]) -> str:
    """Return the path that names the log: the directory of a set, else the file."""
    set_report = _find_set(file, sets)
    return file.path if set_report is None else set_report.path


# -- after a replay ----------------------------------------------------------------------------------------------------


def suggest_after_replay(replay: ReplayResult, read_options: GivenReadOptions = NO_READ_OPTIONS) -> Iterator[str]:
    """Yield the commands that show where the replay stops, and that truncate there or correct the list of files."""
    if replay.is_clean:
        return
    if replay.is_encrypted:
        yield read_options.format_command_with_options("replay-dry-run", *KEY_OPTION, path=replay.path)
        return
    if (
        replay.stop is not None
        and replay.stop.offset is not None
        and (size := _file_size_or_past_offset(replay.stop.file, replay.stop.offset))
    ):
        yield _make_hexdump_command(replay.stop.file, size, replay.stop.offset, read_options)
    if is_url(replay.path) or replay.policy != "server" or detect_file_compression(replay.path) is not None:
        return
    errors = [found for _, found in replay.findings if found.severity is Severity.ERROR]
    ids = {found.id for found in errors}
    is_unrepairable = "gap-in-sequence" in ids or any(
        found.facts.get(TRUNCATION_USELESS) for _, found in replay.findings
    )
    if any(map(needs_files_copied_or_renamed, errors)):
        yield read_options.format_command_with_options("diagnose", path=replay.path)
    elif _can_correct_file_list(errors) and formats.load_format(replay.format).repair.fix_files is not None:
        yield read_options.format_command_with_options("truncate-to-durable", "--fix-meta", path=replay.path)
    elif not is_unrepairable and any(_can_truncate(found.id, found.offset) for _, found in replay.findings):
        yield read_options.format_command_with_options("truncate-to-durable", path=replay.path)


def _file_size_or_past_offset(path: str, offset: int) -> int:
    """Return the size of a file; if it is not local or compressed, a size that includes the offset."""
    is_plain = os.path.isfile(path) and detect_file_compression(path) is None
    return os.path.getsize(path) if is_plain else offset + 1


def _can_truncate(id_: str, offset: int | None) -> bool:
    return offset is not None and id_ in (*CUTTABLE, "damaged-range", "checksum-mismatch", "valid-after-damage")


# -- after a plan ------------------------------------------------------------------------------------------------------


def suggest_after_plan(
    plan: RepairPlan,
    read_options: GivenReadOptions = NO_READ_OPTIONS,
    *,
    plan_path: str | None = None,
    target: str | None = None,
) -> str | None:
    """Return the command that applies a plan; for a refused plan, an alternative command; None if there is none.

    Args:
        plan_path: The file that the plan was saved in.
        target: The log as the user named it.
    """
    if not plan.target:
        return None
    target = _shorten_path(plan.target) if target is None else target
    if plan.refused:
        return _suggest_after_refusal(plan, target, read_options)
    if not plan.changes or plan.policy.copy:
        return None
    if plan_path is not None:
        return read_options.format_command_with_options(
            "truncate-to-durable", "--apply-plan", guard_leading_dash(plan_path)
        )
    return read_options.format_command_with_options(
        "truncate-to-durable", "--apply", *_list_policy_options(plan.policy), path=target
    )


_POLICY_FLAGS = ("allow_discard_valid", "allow_empty_result", "fix_meta", "write_close_marker", "transactions")


def _list_policy_options(policy: RepairPolicy) -> list[str]:
    """Return the command-line options for a policy."""
    words = [f"--{name.replace('_', '-')}" for name in _POLICY_FLAGS if getattr(policy, name)]
    words += [] if policy.max_loss is None else ["--max-loss", str(policy.max_loss)]
    return words + ([] if policy.max_loss_records is None else ["--max-loss-records", str(policy.max_loss_records)])


def _suggest_after_refusal(plan: RepairPlan, target: str, read_options: GivenReadOptions) -> str:
    """Return an alternative to the refused command."""
    reasons = " ".join(plan.reasons)
    if plan.has_encrypted_file:
        return read_options.format_command_with_options("truncate-to-durable", *KEY_OPTION, path=target)
    if (file := _find_bit_correctable_file(plan)) is not None:
        return read_options.format_command_with_options(
            "truncate-to-durable", "--to-file", _find_free_name(file), "--keep-after-damage", path=file
        )
    if UNFINISHED_ADVICE in reasons:
        return read_options.format_command_with_options("truncate-to-durable", "--apply", path=target)
    if "changed-while-read" in reasons:
        return read_options.format_command_with_options("verify", "--live", path=target)
    if WHOLE_LOG_ADVICE in reasons and not os.path.isdir(target):
        return read_options.format_command_with_options(
            "truncate-to-durable", path=os.path.dirname(target) or os.curdir
        )
    if LIST_FIX_OPTION in reasons and not plan.policy.fix_meta:
        return read_options.format_command_with_options("truncate-to-durable", "--fix-meta", path=target)
    if plan.policy.salvage and formats.load_format(plan.format).output.start_script is not None:
        name = f"{os.path.basename(os.path.abspath(target))}.sql"
        return read_options.format_command_with_options(
            "convert", "--to", "sql", "--on-damage", "skip", "-o", guard_leading_dash(name), path=target
        )
    if plan.blocking_file is None:
        return _make_force_command(target, read_options)
    return _suggest_for_file(plan, plan.blocking_file, target, read_options)


def _find_bit_correctable_file(plan: RepairPlan) -> str | None:
    """Return the first file for which the plan can write a copy with corrected bits."""
    texts = [text for text in (*plan.reasons, *plan.notes) if FLIPPED_BIT_ADVICE in text and not plan.policy.salvage]
    return next((one.path for one in plan.files for text in texts if text.startswith(f"{one.path}: ")), None)


def _make_force_command(target: str, read_options: GivenReadOptions) -> str:
    """Return the command that predicts a start with the server's force option."""
    return read_options.format_command_with_options("replay-dry-run", "--policy", "force", path=target)


def _suggest_for_file(plan: RepairPlan, file: FilePlan, target: str, read_options: GivenReadOptions) -> str:
    """Return a command for the file that makes the plan be refused."""
    if file.size and (EMPTY_RESULT in plan.reasons[0] or file.durable_end is None):
        return _make_hexdump_command(file.path, file.size, file.durable_end or 0, read_options)
    if plan.salvaged_copy is not None:
        correct_bits = ["--correct-bits"] if plan.salvaged_copy.corrects_bits else []
        return read_options.format_command_with_options(
            "truncate-to-durable", "--to-file", _find_free_name(file.path), "--keep-after-damage", *correct_bits,
            path=file.path,
        )  # fmt: skip
    never_salvaged = formats.load_format(plan.format).repair.explain_salvage_obstacle() is not None
    if file.action == "none" or "would not be clean" in plan.reasons[0] or never_salvaged:
        return _make_force_command(target, read_options)
    return read_options.format_command_with_options("dump", "-O", "jsonl", "--on-damage", "skip", path=file.path)


def _find_free_name(path: str) -> str:
    """Return an unused name for the salvaged copy, in the working directory; absolute if the log's path is."""
    base = f"{os.path.basename(path)}.salvaged"
    base = os.path.abspath(base) if os.path.isabs(path) else base
    candidates = (guard_leading_dash(base), *(guard_leading_dash(f"{base}-{number}") for number in range(2, 100)))
    return next((name for name in candidates if not os.path.lexists(name)), guard_leading_dash(base))


def collect_read_options(parameters: Mapping[str, object], format_: str) -> GivenReadOptions:
    """Return the options of a run that affect how the log is read.

    Args:
        parameters: The values of the command's options, by parameter name.
    """
    options: list[tuple[str, object]] = [("--format", None if format_ == "auto" else format_)]
    for name in ("redo", "keyfile", "keyfile_secret", "schema"):
        value = parameters.get(name)
        values = value if isinstance(value, tuple) else (value,)
        options += [(f"--{name.replace('_', '-')}", one) for one in values]
    return GivenReadOptions(
        tuple((option, guard_leading_dash(str(value))) for option, value in options if value is not None)
    )


# --- Text of `verify` and `explain` ---

Paint = Callable[[str, str], str]
"""Function (text, style name) -> text, with colour or without."""

MAX_SHOWN_PER_ID = 20
_CLASS_LABELS = {"header": "header", "record": "records", "torn_tail": "torn"}


def paint_plain(text: str, _style: str) -> str:
    """Return the text without colour."""
    return text


def find_file_state_word(file: FileReport) -> str:
    """Return the state of a file, a word of STATE_ORDER: ENCRYPTED if its content was not checked, PARTIAL if a limit
    ended the work, torn for an unfinished end.
    """
    worst = max((f.severity for f in file.findings if not _is_no_damage(f)), default=Severity.NOTE)
    if worst is Severity.ERROR:
        return "DAMAGED"
    if file.is_encrypted:
        return "ENCRYPTED"
    if file.is_unchecked or "incomplete" in file.details:
        return "PARTIAL"
    if any(f.id == "unclean-close" and f.severity is Severity.ERROR for f in file.findings):
        return "NOT CLOSED"
    if worst is Severity.WARNING:
        return "WARNING"
    if any(f.id == "log-outdated" and f.severity > Severity.NOTE for f in file.findings):
        return "OUTDATED"
    if any(f.id in _TORN_IDS for f in file.findings):
        return "torn"
    return "unchanged" if file.details.get("unchanged") else "ok"


STATE_ORDER = ("DAMAGED", "ENCRYPTED", "PARTIAL", "NOT CLOSED", "WARNING", "OUTDATED", "torn", "unchanged", "ok")
"""States of files and logs in all outputs; the state of a log is the first of them that any of its files has."""
STATE_STYLES = {"DAMAGED": "error", "unchanged": "good", "ok": "good"} | dict.fromkeys(STATE_ORDER[1:-2], "warning")
_TORN_IDS = ("torn-tail", "garbage-tail")


def _is_no_damage(finding: Finding) -> bool:
    """Return True for a torn end, for content that was not checked, and for an error only because of an option."""
    return finding.id in ("log-outdated", *_TORN_IDS, *BEYOND_LIMITS) or (
        finding.id == "unclean-close" and finding.severity is Severity.ERROR
    )


def shorten_member_path(path: str, sets: Sequence[SetReport], named_paths: Sequence[str] = ()) -> str:
    """Return the path, relative to the log set if there is only one, and it is not below a directory that was named."""
    if len(sets) != 1 or path == sets[0].path or not _is_set_named_by_user(sets[0], named_paths):
        return escape(path)
    from pathlib import PurePath

    pure = PurePath(path)
    return escape(str(pure.relative_to(sets[0].path)) if pure.is_relative_to(sets[0].path) else path)


def _is_set_named_by_user(set_report: SetReport, named_paths: Sequence[str]) -> bool:
    """Return True if the user named the directory of a set or its files; also if nothing is known of that."""
    directories = {os.path.normpath(path) for path in named_paths}
    directories |= {os.path.normpath(os.path.dirname(path) or os.curdir) for path in named_paths}
    return not named_paths or os.path.normpath(set_report.path) in directories


def render_verify_text(
    report: Report,
    *,
    exit_code: int = 0,
    paint: Paint = paint_plain,
    list_names: bool = False,
    min_severity: Severity | None = None,
    named_paths: Sequence[str] = (),
    read_options: GivenReadOptions = NO_READ_OPTIONS,
) -> Iterator[str]:
    """Yield the lines of a verify report, without line ends.

    Args:
        list_names: Also list the files that are not logs.
        min_severity: List only files and sets with findings of at least this severity, and what to do next.
        named_paths: The paths as the user named them.
        read_options: For the suggested command, see `GivenReadOptions`.
    """
    if min_severity is not None:
        report = _drop_findings_below_severity(report, min_severity)
    only_findings = min_severity is not None
    shown = [shorten_member_path(f.path, report.sets, named_paths) for f in report.files]
    widths = [
        max((len(c) for c in column), default=0) for column in zip(*map(_format_sizes, report.files), strict=True)
    ]
    width = max(map(len, shown), default=0)
    state_width = max((len(find_file_state_word(file)) for file in report.files), default=0)
    for name, file in zip(shown, report.files, strict=True):
        if only_findings and not file.findings and "incomplete" not in file.details:
            continue
        yield _format_file_line(name.ljust(width), max(state_width, 7), file, widths, paint)
        yield from _format_unread_bytes_line(file)
        yield from render_findings(file.findings, paint)
    for failure in report.failures:
        yield f"{escape(failure.path)}   not read"
    for set_report in report.sets:
        if set_report.findings:
            members = (
                f"set of {format_quantity(len(set_report.members), 'file')}" if set_report.members else "directory"
            )
            yield f"{escape(set_report.path)}  ({members})"
            yield from render_findings(set_report.findings, paint)
    if report.suppressed:
        counts_by_option = ", ".join(
            f"{format_count(number)} by --{option}" for option, number in sorted(report.suppressed.items())
        )
        yield f"left out: {format_quantity(sum(report.suppressed.values()), 'finding')} ({counts_by_option})"
    if report.files and not only_findings:
        yield format_byte_account(report.files)
    for depth in ("frame", "checksum"):
        if any(file.details.get("depth") == depth for file in report.files):
            yield f"not checked: payloads and how the files fit (--depth {depth})"
    if not only_findings:
        yield from render_skipped_files(report.skipped, list_names=list_names)
    if hint := suggest_after_verify(report, read_options):
        yield f"next: {hint}"
    if exit_code:
        yield f"exit {exit_code}"


def _drop_findings_below_severity(report: Report, min_severity: Severity) -> Report:
    """Return the report without the findings below a severity."""

    def select(_path: str, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(one for one in findings if one.severity >= min_severity or one.id in UNCHECKED_IDS)  # status 6

    return replace_findings(report, select)


def _format_sizes(file: FileReport) -> tuple[str, str]:
    if file.records is None:
        return format_size(file.size), ""
    return format_size(file.size), f"{file.records:,} record{' ' if file.records == 1 else 's'}"


def _format_file_line(name: str, state_width: int, file: FileReport, widths: Sequence[int], paint: Paint) -> str:
    word = find_file_state_word(file)
    cells = [cell.rjust(width) for cell, width in zip(_format_sizes(file), widths, strict=True)]
    span = "" if file.first_seq is None or file.last_seq is None else f"seq {file.first_seq:,}..{file.last_seq:,}"
    parts = [name, paint(word.ljust(state_width), STATE_STYLES[word]), *cells, span, escape(file.variant)]
    return "   ".join(p for p in parts if p).rstrip()


def _format_unread_bytes_line(file: FileReport) -> Iterator[str]:
    """Yield a line about the bytes that were not read because of a limit, if any."""
    why, unread = file.details.get("incomplete"), file.details.get("unread", 0)
    if why is not None:
        read = file.size - unread
        where = f"not read after {format_offset(read)} ({100 * read / file.size:.1f} %): " if unread else ""
        yield f"  {where}{escape(str(why))}"


def render_findings(findings: Sequence[Finding], paint: Paint = paint_plain) -> Iterator[str]:
    """Yield one indented line per finding, at most `MAX_SHOWN_PER_ID` of a kind."""
    seen: dict[str, int] = {}
    findings, following_count = _hide_findings_after_compression_error(findings)
    for finding in findings:
        seen[finding.id] = seen.get(finding.id, 0) + 1
        if seen[finding.id] <= MAX_SHOWN_PER_ID:
            label = paint(finding.severity.label.ljust(8), finding.severity.label)
            yield f"  {label} {format_offset(finding.offset):<10}  {finding.id:<20} {format_finding(finding)}".rstrip()
    for id_, number in seen.items():
        if number > MAX_SHOWN_PER_ID:
            yield f"  … {format_quantity(number - MAX_SHOWN_PER_ID, 'more finding')} {id_} (all of them: -O json)"
    if following_count:
        yield f"  … {format_quantity(following_count, 'more finding')} in the unpacked bytes (all of them: -O json)"


def _hide_findings_after_compression_error(findings: Sequence[Finding]) -> tuple[Sequence[Finding], int]:
    """Return the findings to show of a file, and the number of those left out.

    Of a compressed file that is damaged, the unpacked bytes are not those of the log: what is wrong in them follows.
    """
    cuts = [one for one in findings if one.id == "compression-error" and "packed_size" in one.facts]
    if not cuts:
        return findings, 0
    about_set = [one for one in findings if one.id in (*_LIST_IDS, "gap-in-sequence", *_CHANGE_IDS)]
    return [*cuts, *about_set], len(findings) - len(cuts) - len(about_set)


_CHANGE_IDS = ("changed-while-read", "changed-since-run")


def format_byte_account(files: Sequence[FileReport]) -> str:
    """Return a line with the bytes per class over all files; they add up to the sizes."""
    totals = {name: sum(f.bytes.get(name, 0) for f in files) for name in BYTE_CLASSES}
    unread = sum(f.details.get("unread", 0) for f in files)
    totals["unknown"] -= unread
    totals["not read"] = unread
    parts = [f"{_CLASS_LABELS.get(name, name)} {format_count(n)}" for name, n in totals.items() if n]
    total_size, accounted = sum(f.size for f in files), sum(totals.values())
    percent = "100 %" if total_size == accounted else f"{100 * accounted / max(total_size, 1):.4f} % accounted for"
    percent = f"{100 * (total_size - unread) / total_size:.1f} % read" if unread else percent
    return f"bytes: {' · '.join([*parts, f'total {format_count(total_size)}'])} ({percent})"


# --- Text and JSON of plans, repairs and their undo ---


def render_plan_text(
    plan: RepairPlan,
    *,
    will_apply: bool = False,
    list_names: bool = False,
    read_options: GivenReadOptions = NO_READ_OPTIONS,
    plan_path: str | None = None,
) -> Iterator[str]:
    """Yield the lines of a plan: first the changes, then the unchanged files.

    Args:
        will_apply: The plan is about to be carried out.
        list_names: Also list the files that are not logs.
        read_options: For the suggested command, see `GivenReadOptions`.
        plan_path: The file in which the plan was saved.
    """
    if len(plan.files) == 1:
        yield from _render_file_plan(plan.files[0])
    else:
        for file in plan.changes:
            yield from _render_file_plan(file)
        yield from _render_unchanged(file for file in plan.files if file.action == "none")
    yield from render_skipped_files(plan.skipped, list_names=list_names)
    yield from _render_items("refuse" if plan.refused else "note", plan.reasons)
    yield from _render_items("note", plan.notes)
    if (plan.refused or not will_apply) and (hint := suggest_after_plan(plan, read_options, plan_path=plan_path)):
        yield f"next: {hint}"
    if plan.refused:
        yield "refused; nothing was changed"
    elif not plan.changes:
        yield "nothing to do; nothing was changed"
    elif not will_apply:
        yield "nothing was changed; use --apply to carry out the plan"


def _render_unchanged(files: Iterable[FilePlan]) -> Iterator[str]:
    """Yield one line for all files that do not change."""
    file_count = sizes = records = 0
    for file in files:
        file_count, sizes, records = file_count + 1, sizes + file.size, records + file.kept_records
    if file_count:
        counts = format_quantity(sizes, "byte"), format_quantity(records, "complete record")
        yield f"stay   {format_quantity(file_count, 'file')}: nothing to remove, {counts[0]}, {counts[1]}"


def _render_file_plan(file: FilePlan) -> Iterator[str]:
    yield f"plan   {escape(file.path)}: {_describe_action(file)}"
    simple = {k: v for k, v in file.proof.items() if v is not None and not isinstance(v, (Mapping, list, tuple))}
    if simple:
        facts = (f"{escape(k)} {escape(_format_value(v))}".replace("_", " ") for k, v in simple.items())
        yield f"proof  {' · '.join(facts)}"
    for name, items in file.proof.items():
        if isinstance(items, (list, tuple)):
            yield from _render_items(name, items)
    if file.sha256_cut:
        yield f"sha256 kept {file.sha256_kept}  cut {file.sha256_cut}"


_ITEM_LABELS = {"behind": "after", "left_out": "left out"}
"""Labels of lists of a plan that have another name in JSON."""


def _render_items(name: str, items: Sequence[object]) -> Iterator[str]:
    """Yield a line for each item, at most `MAX_SHOWN_PER_ID` of a kind, as in the report of `verify`."""
    seen = Counter[str]()
    for item in items:
        kind = str(item["id"]) if isinstance(item, Mapping) and "id" in item else ""
        seen[kind] += 1
        if seen[kind] <= MAX_SHOWN_PER_ID:
            yield f"{_ITEM_LABELS.get(name, escape(name)):<6} {escape(_format_value(item))}"
    for kind, number in seen.items():
        if number > MAX_SHOWN_PER_ID:
            yield (
                f"{escape(name):<6} … {format_count(number - MAX_SHOWN_PER_ID)} more {escape(kind)}".rstrip()
                + " (all: -O json)"
            )


_MAX_PLACES = 5
"""Maximum number of offsets in a line."""


def _describe_action(file: FilePlan) -> str:
    if file.action == "none":
        return f"nothing to remove, {format_quantity(file.size, 'byte')}"
    if file.action == "remove":
        counts = (
            format_quantity(file.size, "byte"),
            format_count(file.cut_bytes),
            format_quantity(file.cut_valid_records, "complete record"),
        )
        return "remove {}, {} of them content ({} among them)".format(*counts)
    if file.made_like is not None:
        return f"new file, {format_quantity(file.result_size, 'byte')}"
    new_bytes = sum(len(p.data) for p in file.pieces if p.data is not None)
    if file.action == "rewrite" and new_bytes == file.result_size:
        return f"write anew: {format_quantity(file.size, 'byte')} before, {format_quantity(new_bytes, 'byte')} after"
    if file.action == "rewrite" and not file.cut_bytes:
        return (
            f"{format_quantity(file.size, 'byte')} to {format_quantity(file.result_size, 'byte')}, "
            f"{format_count(new_bytes)} of them new"
        )
    at = format_offset(file.pieces[0].end if file.action == "truncate" else file.durable_end)
    if file.action == "rewrite" and (left_out := file.proof.get("left_out")):
        offsets = sorted({one["offset"] for one in left_out})
        at = join_names(map(format_offset, offsets), _MAX_PLACES)
    cut_text = f"cut {format_count(file.cut_bytes)} of {format_quantity(file.size, 'byte')} at {at}"
    extra_text = f", write {format_quantity(new_bytes, 'byte')}" if new_bytes else ""
    extra_text += f", grow to {format_quantity(file.result_size, 'byte')}" if file.result_size > file.size else ""
    return f"{cut_text}{extra_text} ({format_quantity(file.cut_valid_records, 'complete record')} among them)"


def _format_value(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return format_count(value)
    if isinstance(value, Mapping):
        at = f"{format_offset(value['offset'])} " if isinstance(value.get("offset"), int) else ""
        texts = [str(value[name]) for name in ("id", "message") if name in value]
        return at + (": ".join(texts) if texts else ", ".join(f"{k} {_format_value(v)}" for k, v in value.items()))
    return str(value)


def render_repair_result_text(applied: RepairResult) -> Iterator[str]:
    """Yield the lines about the files that were written."""
    yield from (f"note   {escape(note)}" for note in applied.notes)
    yield from (line for file in applied.files for line in _render_written_file("wrote", file))
    if applied.undo is not None:
        yield f"undo   binlogtool undo --apply {quote_for_shell(applied.undo)}"


def render_undo_text(plan: UndoPlan, *, will_apply: bool = False) -> Iterator[str]:
    """Yield the lines about the changes that `undo` would make."""
    yield f"undo   {escape(plan.undo)}: made {escape(plan.made)}, repair {escape(plan.state)}"
    for path, action, restored in plan.files:
        sizes = f"{format_quantity(restored.size_before, 'byte')} to {format_quantity(restored.size_after, 'byte')}"
        yield f"plan   {escape(path)}: {'restore, ' + sizes if action == 'restore' else 'nothing to do'}"
    for reason in plan.reasons:
        yield f"refuse {escape(reason)}"
    if plan.reasons:
        yield "refused; nothing was changed"
    elif all(action == "none" for _, action, _ in plan.files):
        yield "nothing to do; nothing was changed"
    elif not will_apply:
        yield "nothing was changed; use --apply to carry out the plan"


def render_undo_applied_text(applied: RepairResult) -> Iterator[str]:
    """Yield the lines about the files that `undo` restored."""
    return (line for file in applied.files for line in _render_written_file("wrote", file))


def _render_written_file(word: str, file: WrittenFile) -> Iterator[str]:
    yield f"{word:<6} {escape(file.path)}"
    for when, size, digest in (
        ("before", file.size_before, file.sha256_before), ("after", file.size_after, file.sha256_after)
    ):  # fmt: skip
        yield f"{when:<6} {format_quantity(size, 'byte')}, sha256 {digest}" if digest else f"{when:<6} no file"


def undo_to_json(plan: UndoPlan, applied: RepairResult | None) -> dict[str, Any]:
    """Return the value of `undo -O json`."""
    return {
        "schema": "binlogtool/undo/1",
        **pick_members(plan, "undo", "state", "made"),
        "refused": bool(plan.reasons),
        "reasons": list(plan.reasons),
        "files": [{"action": action, **dict(back._asdict())} for _, action, back in plan.files],
        **({"applied": True} if applied is not None else {}),
    }


# --- JSON of `verify`, plans and `explain` ---


def findings_to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the JSON value of the member `findings`."""
    return [finding_to_value(f) for f in findings]


def file_report_to_json(file: FileReport) -> dict[str, Any]:
    """Return one member of `files`. The members first_seq, last_seq and details are additions to the shape."""
    return {
        **pick_members(file, "path", "format", "variant", "size", "records"),
        "record_types": dict(file.record_types),
        **pick_members(file, "transactions", "durable_end", "closed"),
        "bytes": dict(file.bytes),
        "findings": findings_to_json(file.findings),
        **pick_members(file, "first_seq", "last_seq"),
        **({"encrypted": True} if file.is_encrypted else {}),
        **({"details": dict(file.details)} if file.details else {}),
    }


def set_report_to_json(set_report: SetReport) -> dict[str, Any]:
    """Return one member of `sets`."""
    return {
        **pick_members(set_report, "path", "format"),
        "members": list(set_report.members),
        "findings": findings_to_json(set_report.findings),
    }


def failure_to_json(failure: PathFailure) -> dict[str, Any]:
    """Return one member of `failures`: a path that could not be read."""
    return pick_members(failure, "path", "message", "exit_code")


def skipped_files_from_json(value: Mapping[str, Any]) -> SkippedFiles:
    """Reverse `skipped_files_to_json`."""
    return SkippedFiles(value["path"], tuple(SkippedFile(one["name"], one["kind"]) for one in value["files"]))


def encode_verify_report(report: Report, version: str) -> Iterator[bytes]:
    """Yield `verify -O json` in pieces, one per file: all files as plain values would take many times the memory."""
    document = _make_verify_document(report, version)
    return encode_document_in_pieces(lambda: document, "files", map(file_report_to_json, report.files))


def _make_verify_document(report: Report, version: str) -> dict[str, Any]:
    """Return the value of `verify -O json` (binlogtool/verify/1) without the files.

    `failures` exists only if a path could not be read, `not_logs` only if a directory has other files too, and
    `left_out` only if findings were left out.
    """
    return {
        "schema": "binlogtool/verify/1",
        "tool": {"name": "binlogtool", "version": version},
        "status": report.status,
        "files": [],
        "sets": [set_report_to_json(s) for s in report.sets],
        "summary": {
            "files": len(report.files),
            "bytes": sum(f.size for f in report.files),
            "records": sum(f.records or 0 for f in report.files),
            "findings": {s.label: report.count_findings(s) for s in sorted(Severity, reverse=True)},
            **({"left_out": dict(report.suppressed)} if report.suppressed else {}),
        },
        **({"failures": [failure_to_json(f) for f in report.failures]} if report.failures else {}),
        **({"not_logs": [skipped_files_to_json(one) for one in report.skipped]} if report.skipped else {}),
    }


def finding_from_json(value: Mapping[str, Any]) -> Finding:
    """Restore a finding from its JSON value."""
    return Finding(
        str(value["id"]),
        Severity[str(value["severity"]).upper()],
        value["offset"],
        int(value["length"]),
        str(value["message"]),
        value["record"],
        dict(value["facts"]),
    )


def file_report_from_json(value: Mapping[str, Any]) -> FileReport:
    """Reverse `file_report_to_json`."""
    members = {name: value[name] for name in FileReport.__struct_fields__ if name in value}
    findings = tuple(finding_from_json(f) for f in value["findings"])
    return FileReport(**{**members, "findings": findings})


def set_report_from_json(value: Mapping[str, Any]) -> SetReport:
    """Reverse `set_report_to_json`."""
    findings = tuple(finding_from_json(f) for f in value["findings"])
    return SetReport(value["path"], value["format"], tuple(value["members"]), findings)


def plan_to_json(plan: RepairPlan, applied: RepairResult | None = None) -> dict[str, Any]:
    """Return the value of `truncate-to-durable -O json` (binlogtool/plan/1).

    Args:
        applied: The changes already made; None = nothing was applied.
    """
    not_logs = {"not_logs": [skipped_files_to_json(one) for one in plan.skipped]} if plan.skipped else {}
    if applied is None:
        return plan.to_json_value() | not_logs
    written = [dict(one._asdict()) for one in applied.files]
    value = {**plan.to_json_value(), **not_logs, "applied": True, "undo": applied.undo, "written": written}
    return value | ({"notes": [*plan.notes, *applied.notes]} if applied.notes else {})


def status_to_json(key: str) -> dict[str, str]:
    """Return one exit status of `explain -O json`; two numbers with the same meaning share an entry."""

    return {"status": key, **STATUSES[key]._asdict()}


def explanation_to_json(id_: str) -> dict[str, str]:
    """Return one finding of `explain -O json`."""
    explanation = EXPLANATIONS[id_]
    texts = {"meaning": explanation.meaning, "causes": explanation.causes, "action": explanation.action}
    return {"id": id_, "severity": explanation.severity.label, **texts}
