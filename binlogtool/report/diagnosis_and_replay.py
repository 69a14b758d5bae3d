"""Report a diagnosis, and the replay prediction of a log, as text and JSON."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from binlogtool import formats
from binlogtool.core.lost_records import LostRange, find_lost_ranges
from binlogtool.core.notify_progress_listener import READABLE_COMPRESSED_SUFFIXES
from binlogtool.core.open_file import detect_file_compression, is_url
from binlogtool.core.record_and_selection_types import ReadOptions
from binlogtool.errors import BinlogtoolError, join_names
from binlogtool.findings import Finding, Severity, finding_to_value, make_finding
from binlogtool.format_api.encode_json import TimeFormatter, encode_document, pick_members
from binlogtool.format_api.replay_rules import VERBS, ReplayStop
from binlogtool.prediction.predict_replay import SCHEMA as REPLAY_SCHEMA
from binlogtool.prediction.predict_replay import ObjectTally, ReplayDecision, ReplayResult
from binlogtool.repair.diagnose_startup import (
    OPEN,
    REFUSES,
    STARTS,
    UNKNOWN,
    Diagnosis,
    DiagnosisReport,
    DirectoryFacts,
    list_unchecked,
)
from binlogtool.repair.plan_types import RepairPlan
from binlogtool.report.ci_reports import escape_markdown
from binlogtool.report.format_numbers_and_names import (
    format_command,
    format_count,
    format_finding,
    format_offset,
    format_quantity,
    format_size,
    quote_for_shell,
)
from binlogtool.report.verify_and_plan_text import (
    KEY_OPTION,
    NO_READ_OPTIONS,
    STATE_ORDER,
    STATE_STYLES,
    GivenReadOptions,
    Paint,
    failure_to_json,
    find_file_state_word,
    guard_leading_dash,
    needs_files_copied_or_renamed,
    paint_plain,
    suggest_after_plan,
    suggest_after_replay,
    suggest_after_verify,
)
from binlogtool.terminal.escape_and_fold_text import escape

if TYPE_CHECKING:
    from binlogtool.export.manifest import Manifest


SCHEMA = "binlogtool/diagnose/1"
_MAX_SHOWN = 5
"""Maximum number of losses, reasons and `explain` commands in the text for each log; JSON contains all."""


class RepairStep(NamedTuple):
    """One recommended action; it is serialised with these member names.

    Attributes:
        command: Command line that can be pasted; None if the action is not a command.
    """

    what: str
    command: str | None


# -- recommended actions -----------------------------------------------------------------------------------------------


def list_steps(diagnosis: Diagnosis, read_options: GivenReadOptions = NO_READ_OPTIONS) -> list[RepairStep]:
    """Return the steps in order, from the safe copy to the undo command; none for a healthy log."""
    if diagnosis.is_healthy:
        return []
    read_options = read_options.with_option("--redo", diagnosis.redo)
    if (method := detect_file_compression(diagnosis.path)) is not None:
        return _list_unpack_steps(diagnosis, method)
    hint = suggest_after_verify(diagnosis.report, read_options)
    if diagnosis.start == UNKNOWN and diagnosis.plan is not None and diagnosis.plan.has_encrypted_file:
        return [
            RepairStep(
                "give the key", read_options.format_command_with_options("diagnose", *KEY_OPTION, path=diagnosis.path)
            )
        ]
    if diagnosis.start == UNKNOWN and diagnosis.plan is None:
        return [] if hint is None else [RepairStep("give the key or the files that are missing", hint)]
    inspection_steps = (
        [] if hint is None or " hexdump-annotate " not in hint else [RepairStep("show the first damage", hint)]
    )
    restore_steps = _list_restore_steps(diagnosis)
    file_steps = list(_list_exchange_and_missing_steps(diagnosis))
    repair_steps = file_steps or list(_list_repair_steps(diagnosis, read_options, hint))
    if file_steps or (restore_steps and not repair_steps):
        repair_steps += _list_predict_and_start_steps(diagnosis, read_options)
    return [*_make_copy_step(diagnosis.path), *restore_steps, *inspection_steps, *repair_steps]


RESTORE_FACT = "restore"
"""Fact of a silent loss: the file without which the server reads nothing."""


def _list_restore_steps(diagnosis: Diagnosis) -> list[RepairStep]:
    """Return the steps for files without which the server would start empty; they come before any repair."""
    steps = []
    wanted = {str(found.facts[RESTORE_FACT]): found for _, found in diagnosis.losses if RESTORE_FACT in found.facts}
    for text, found in wanted.items():
        steps.append(
            RepairStep(f"do not start the server yet: restore {escape(text)} from a backup or a replica", None)
        )
        records = found.facts.get("records")
        lost = "these records" if records is None else format_quantity(int(records), "record")
        steps.append(
            RepairStep(f"{_NO_COPY}: the server starts empty, and {lost} are lost to it; dump still shows them", None)
        )
    return steps


_NO_COPY = "only if no copy exists"


def _describe_lost_names(diagnosis: Diagnosis) -> str:
    """Return the transactions or records that the damage took, as text; empty if none has a name."""
    names = [format_lost_names(one) for one in diagnosis.lost if one.names]
    names += [
        escape(found.message.removesuffix(" is missing"))
        for _, found in _iter_findings(diagnosis)
        if found.id == "gap-in-sequence"
    ]
    return ", ".join(dict.fromkeys(names))


def _list_exchange_and_missing_steps(diagnosis: Diagnosis) -> Iterator[RepairStep]:
    """Yield the steps for exchanged files, and for files that are missing between others."""
    seen: set[str] = set()
    for file in diagnosis.report.files:
        for found in file.findings:
            if (name := found.facts.get("exchanged_with")) and file.path not in seen:
                other = os.path.join(os.path.dirname(file.path), str(name))
                seen |= {file.path, other}
                yield from _list_exchange_steps(file.path, other)
    for set_report in diagnosis.report.sets:
        for found in set_report.findings:
            if (
                found.id == "missing-member"
                and found.severity is Severity.ERROR
                and needs_files_copied_or_renamed(found)
            ):
                yield from _list_missing_steps(found)


def _list_exchange_steps(path: str, other: str) -> Iterator[RepairStep]:
    aside = f"{path}.exchanged"
    what = f"exchange the names of {escape(os.path.basename(path))} and {escape(os.path.basename(other))}"
    for number, (old, new) in enumerate(((path, aside), (other, path), (aside, other)), start=1):
        yield RepairStep(f"{what}, {number} of 3", " ".join(map(quote_for_shell, ("mv", "-n", "--", old, new))))


def _list_missing_steps(found: Finding) -> Iterator[RepairStep]:
    """Yield the steps for a log file that is missing between others."""
    name = escape(str(found.facts.get("missing", "the missing file")))
    yield RepairStep(f"copy {name} from a backup, or from a replica that has it, into this directory", None)
    if not found.facts.get("between"):
        advice = "only if it was purged, or no copy exists: let --fix-meta remove its line from the list of files"
        yield RepairStep(advice, None)
        return
    yield RepairStep(
        f"{_NO_COPY}: {_describe_missing_transactions(found) or 'its transactions'} are lost for replicas and for "
        "point-in-time recovery; remove its line from the index, and rebuild the replicas",
        None,
    )


def _describe_missing_transactions(finding: Finding) -> str:
    """Return the transactions that a finding names as missing, as text; empty if it names none."""
    spans = []
    for source, pairs in finding.facts.get("missing_gtids", {}).items():
        mark = f"{source}{':' if len(source) >= _UUID_SIZE else '-'}"
        spans += [f"{mark}{first}" if first == last else f"{mark}{first} to {mark}{last}" for first, last in pairs]
    return f"transactions {escape(', '.join(spans))}" if spans else ""


_UUID_SIZE = 36


def _list_predict_and_start_steps(diagnosis: Diagnosis, read_options: GivenReadOptions) -> list[RepairStep]:
    """Return the last steps of a repair that is made by hand."""
    is_part = any("undetermined" in replay.details.get("startup", {}) for replay in diagnosis.replays)
    start = "start the server only if the prediction is yes" if is_part else "start the server"
    return [
        RepairStep(_PREDICT, read_options.format_command_with_options("diagnose", path=diagnosis.path)),
        RepairStep(start, None),
    ]


_UNPACK_COMMANDS = {"gzip": "gunzip -k", "xz": "unxz -k", "bzip2": "bunzip2 -k", "zstd": "unzstd"}


def _list_unpack_steps(diagnosis: Diagnosis, method: str) -> list[RepairStep]:
    """Return the steps for a compressed file: its server does not read it, so nothing in it can be repaired."""
    if any("packed_size" in found.facts for found in diagnosis.report.findings):
        return [RepairStep("copy the file again from where it was compressed: its data is cut or damaged", None)]
    command = f"{_UNPACK_COMMANDS[method]} -- {quote_for_shell(diagnosis.path)}"
    return [RepairStep("unpack the file, and run diagnose on the unpacked one", command)]


def _make_copy_step(path: str) -> list[RepairStep]:
    """Return the step that copies the log before any repair."""
    if is_url(path) or path == "-":
        return []
    base = path.rstrip("/") or path
    if os.path.basename(base) in (os.curdir, os.pardir):  # a copy beside the directory, not in it
        base = os.path.normpath(os.path.join(base, os.pardir, os.path.basename(os.path.abspath(path))))
    names = (f"{base}.copy{number}" for number in ("", *range(2, 100)))
    free = next((name for name in names if not os.path.lexists(name)), f"{base}.copy")
    words = ("cp", "-a", "--", path, free)
    return [RepairStep("stop the server, and keep a copy", " ".join(map(quote_for_shell, words)))]


_PREDICT = "predict what the server does now"
_REPLAY_STEPS = ("show the bytes where the server stops", "review the repair of this log; nothing is changed")


def _list_repair_steps(
    diagnosis: Diagnosis, read_options: GivenReadOptions, inspected: str | None
) -> Iterator[RepairStep]:
    """Yield the steps after the inspection. inspected: the command of the inspection."""
    plan = diagnosis.plan
    if (plan is None or plan.refused or not plan.changes) and (remedies := _list_remedies(diagnosis)):
        yield from remedies
        yield from _list_predict_and_start_steps(diagnosis, read_options)
        return
    hint = None if plan is None else suggest_after_plan(plan, read_options, target=diagnosis.path)
    if plan is None or hint is None:
        yield from (
            RepairStep(_REPLAY_STEPS[" truncate-to-durable " in text], text)
            for text in _list_replay_commands(diagnosis, read_options)
            if text != inspected
        )
        return
    if plan.refused:
        yield from _list_salvage_steps(diagnosis, plan, hint, inspected, read_options)
        return
    if _is_plan_done_by_server(diagnosis, plan):
        yield RepairStep(
            "nothing needs to be done: the server does the same when it starts; these steps do it earlier", None
        )
    flags = ("--fix-meta",) if plan.policy.fix_meta else ()
    yield RepairStep(
        "review the plan; nothing is changed",
        read_options.format_command_with_options("truncate-to-durable", *flags, path=diagnosis.path),
    )
    yield RepairStep("apply the plan", hint)
    yield RepairStep(_PREDICT, read_options.format_command_with_options("replay-dry-run", path=diagnosis.path))
    yield RepairStep("start the server", None)
    if any(file.made_like is None for file in plan.changes):
        yield RepairStep("to undo the repair", _make_undo_command(plan))


def _is_plan_done_by_server(diagnosis: Diagnosis, plan: RepairPlan) -> bool:
    """Return True if the server itself truncates the logs at its start where the plan does."""
    cuts = {(os.path.basename(file.path), file.pieces[0].end) for file in plan.changes if file.pieces}
    own = {
        (os.path.basename(path), found.offset)
        for path, found in diagnosis.losses
        if found.facts.get("situation") in ("start", "restart")
    }
    return diagnosis.start == STARTS and bool(cuts) and cuts <= own


def _list_remedies(diagnosis: Diagnosis) -> list[RepairStep]:
    """Return the format's own steps that make the server start."""
    remedies = (replay.details.get("startup", {}).get("remedy", ()) for replay in diagnosis.replays)
    return [RepairStep(step["what"], step["command"]) for steps_ in remedies for step in steps_]


def _list_salvage_steps(
    diagnosis: Diagnosis, plan: RepairPlan, hint: str, inspected: str | None, read_options: GivenReadOptions
) -> Iterator[RepairStep]:
    """Yield the steps if truncation in place is refused: write a salvaged copy to replace the file, if possible; else
    write what is provable as SQL, or restore the file.
    """
    words = shlex.split(hint)
    if "--to-file" not in words:
        yield from _list_steps_for_unrepairable_log(diagnosis, plan, hint, inspected, read_options)
        return
    new, old = words[words.index("--to-file") + 1], words[-1]
    names = ", ".join(dict.fromkeys(format_lost_names(one) for one in diagnosis.lost if one.names))
    expected = ""
    if plan.salvaged_copy is not None and plan.salvaged_copy.corrects_bits:
        bits = format_quantity(len(plan.salvaged_copy.proof["corrected"]), "flipped bit")
        yield RepairStep(f"write a copy of the log with {bits} corrected; its checksums prove the result", hint)
        yield RepairStep("check the copy", read_options.format_command_with_options("verify", path=new))
    else:
        yield RepairStep("truncating would discard durable records; write a salvaged copy instead", hint)
        check = read_options.format_command_with_options("verify", "--severity", "gap-in-sequence=warning", path=new)
        yield RepairStep("check the copy: a warning about a gap is expected, nothing else may be wrong", check)
        expected = f"; a gap and a silent loss are expected for {names}, with status 1" if names else ""
    yield RepairStep("replace the log by the copy", " ".join(map(quote_for_shell, ("cp", "--", new, old))))
    yield RepairStep(
        _PREDICT + expected, read_options.format_command_with_options("replay-dry-run", path=diagnosis.path)
    )
    yield RepairStep("start the server", None)


def _list_steps_for_unrepairable_log(
    diagnosis: Diagnosis,
    plan: RepairPlan,
    suggested_command: str,
    inspect_command: str | None,
    read_options: GivenReadOptions,
) -> Iterator[RepairStep]:
    """Yield the steps for a log that no cut and no salvaged copy repairs."""
    has_script = formats.load_format(plan.format).output.start_script is not None
    force = " replay-dry-run --policy force " in suggested_command
    shows_bytes = " hexdump-annotate " in suggested_command and inspect_command is not None
    if (
        suggested_command != inspect_command
        and not shows_bytes
        and not (force and (has_script or plan.blocking_file is not None))
    ):
        yield RepairStep("truncation is refused for the reasons above; this command shows details", suggested_command)
    if has_script and not plan.has_encrypted_file and any(file.kept_records for file in plan.files):
        name = os.path.basename(os.path.abspath(diagnosis.path))
        yield RepairStep(
            "truncation is refused, for the reasons above; to restore elsewhere, write all complete "
                "transactions as SQL",
            read_options.format_command_with_options(
                "convert", "--to", "sql", "--on-damage", "skip", "-o", guard_leading_dash(f"{name}.sql"),
                path=diagnosis.path,
            ),
        )  # fmt: skip
    blocking = plan.blocking_file
    if blocking is not None and not plan.has_encrypted_file and not is_url(diagnosis.path):
        yield RepairStep(f"restore {escape(os.path.basename(blocking.path))}, if a backup or a replica has it", None)
        name, names = escape(os.path.basename(blocking.path)), _describe_lost_names(diagnosis)
        lost = f"lost: {names}; " if names else ""
        if has_script:
            yield RepairStep(
                f"{_NO_COPY}: {lost}move {name} out of the directory, remove its line from the index, load the script "
                "into a restored server, and rebuild the replicas",
                None,
            )
        elif diagnosis.start == STARTS and not any(RESTORE_FACT in found.facts for _, found in diagnosis.losses):
            yield RepairStep(f"{_NO_COPY}: {lost}the server starts without them", None)
        elif force:
            yield RepairStep(
                f"{_NO_COPY}: {lost}this predicts a start with the server's force option", suggested_command
            )
        if os.path.isdir(diagnosis.path):
            yield from _list_predict_and_start_steps(diagnosis, read_options)


def _make_undo_command(plan: RepairPlan) -> str:
    """Return the undo command. The undo file does not exist yet; a pattern names it. Of several files, `undo` takes the
    newest one that is not undone yet.
    """
    first = next(file for file in plan.changes if file.made_like is None)
    return f"{format_command('undo', '--apply', guard_leading_dash(f'{first.path}.binlogtool-undo-'))}*"


def _list_replay_commands(diagnosis: Diagnosis, read_options: GivenReadOptions) -> list[str]:
    """Return the `replay-dry-run` commands to run next, one for each log of the diagnosis."""
    return list(
        dict.fromkeys(text for replay in diagnosis.replays for text in suggest_after_replay(replay, read_options))
    )


def list_explain_commands(diagnosis: Diagnosis) -> list[str]:
    """Return the `explain` commands for the errors that were found."""
    errors = [f for f in diagnosis.report.findings if f.severity is Severity.ERROR]
    errors += [f for replay in diagnosis.replays for _, f in replay.findings if f.severity is Severity.ERROR]
    return [format_command("explain", id_) for id_ in dict.fromkeys(f.id for f in errors)]


# -- text --------------------------------------------------------------------------------------------------------------

_START_LABELS = {
    STARTS: "yes",
    REFUSES: "NO",
    OPEN: "cannot be determined from this log",
    UNKNOWN: "cannot be determined",
}


def describe_whether_server_starts(diagnosis: Diagnosis) -> str:
    """Describe whether the server will start, and why not."""
    answer = _START_LABELS[diagnosis.start]
    stop = next((replay.stop for replay in diagnosis.replays if replay.stop is not None), None)
    startup: dict[str, Any] = next(
        (found for replay in diagnosis.replays if (found := replay.details.get("startup"))), {}
    )
    if diagnosis.start == UNKNOWN:
        return f"{answer}: {escape(_describe_why_start_unknown(diagnosis))}"
    if diagnosis.start == REFUSES and "why" in startup:
        stop = ReplayStop(startup["file"], startup["offset"], startup["why"])
    unchecked = escape(
        "; ".join(
            [*(text for replay in diagnosis.replays for text in list_unchecked(replay)), *diagnosis.unusable_files]
        )
    )
    if diagnosis.unstable_reason is not None:
        return escape(diagnosis.unstable_reason)
    if diagnosis.start == OPEN and unchecked:
        return f"cannot be determined: {unchecked}"
    if diagnosis.start == STARTS and any(RESTORE_FACT in found.facts for _, found in diagnosis.losses):
        answer += ", as a new, empty instance"
    if diagnosis.start == STARTS and unchecked:
        answer += f"; {unchecked}"
    if diagnosis.start == OPEN and (reason := startup.get("undetermined")):
        answer += f": {escape(reason)}"
    if stop is None or diagnosis.start != REFUSES:
        return answer
    return f"{answer}: it stops at {_describe_stop(stop)}"


def describe_replay_stop(diagnosis: Diagnosis) -> str:
    """Describe where the replay stops if the start does not depend on that; else return ""."""
    stop = next((replay.stop for replay in diagnosis.replays if replay.stop is not None), None)
    is_start = diagnosis.start in (REFUSES, UNKNOWN) or diagnosis.unstable_reason is not None
    return "" if stop is None or is_start else f"stops at {_describe_stop(stop)}"


def _describe_stop(stop: ReplayStop) -> str:
    at = "" if stop.offset is None else f" {format_offset(stop.offset)}"
    return f"{escape(os.path.basename(stop.file))}{at}: {escape(stop.why)}"


def _describe_why_start_unknown(diagnosis: Diagnosis) -> str:
    reasons = (
        [diagnosis.incomplete_reason]
        if diagnosis.incomplete_reason
        else [failure.message for failure in diagnosis.report.failures]
    )
    reasons += [replay.incomplete_reason for replay in diagnosis.replays if replay.incomplete_reason]
    if any(replay.is_encrypted for replay in diagnosis.replays):
        reasons.append("the log is encrypted; give its key with --keyfile")
    return reasons[0] if reasons else "the log could not be read to its end"


def describe_losses(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield lines about what the server would lose without an error."""
    lines = [
        f"{escape(os.path.basename(file))} {format_offset(finding.offset)}: {format_finding(finding)}"
        + (f"; {missing}" if (missing := _describe_missing_transactions(finding)) else "")
        for file, finding in diagnosis.losses
    ]
    yield from _limit_lines(lines)
    yield from _limit_lines(list(describe_lost_ranges(diagnosis.lost)))
    copy = None if diagnosis.plan is None else diagnosis.plan.salvaged_copy
    if copy is not None and copy.corrects_bits:
        bits = format_quantity(len(copy.proof["corrected"]), "flipped bit")
        yield f"correcting {bits} recovers all of {escape(os.path.basename(copy.path))}, as below"
    if diagnosis.rejected_records:
        yield f"{format_quantity(diagnosis.rejected_records, 'record')} would be rejected"
    if not diagnosis.losses and not diagnosis.lost and not diagnosis.rejected_records:
        yield "no silent loss found" if diagnosis.start != UNKNOWN else "cannot be determined"


def _limit_lines(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MAX_SHOWN]
    if len(lines) > _MAX_SHOWN:
        yield f"… {format_count(len(lines) - _MAX_SHOWN)} more (-O json has all)"


_KEEP_ENCRYPTED = "cannot be determined without the key; without it no record is proven"
_CHANGE_WORDS = {"remove": "removed", "truncate": "cut"}


def describe_kept(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield lines about what can be kept, and what is removed."""
    records = sum(file.records or 0 for file in diagnosis.report.files)
    if diagnosis.plan is None:
        complete = diagnosis.is_healthy or diagnosis.start != UNKNOWN
        if any(file.is_encrypted for file in diagnosis.report.files):
            yield _KEEP_ENCRYPTED
            return
        yield (
            f"all {format_quantity(records, 'record')}"
            if complete
            else f"{format_quantity(records, 'provable record')} found"
        )
        return
    if diagnosis.plan.refused:
        yield (
            f"{_KEEP_ENCRYPTED}; truncation in place is refused:"
            if diagnosis.plan.has_encrypted_file
            else f"{format_quantity(records, 'provable record')} found; truncation in place is refused:"
        )
        yield from (f"  {line}" for line in _limit_lines(list(map(escape, diagnosis.plan.reasons))))
        return
    if diagnosis.plan.policy.fix_meta and not any(file.cut_valid_records for file in diagnosis.plan.changes):
        kept = sum(file.kept_records for file in diagnosis.plan.files)
        changes = join_names(
            (
                f"{escape(os.path.basename(file.path))} is {_CHANGE_WORDS.get(file.action, 'corrected')}"
                for file in diagnosis.plan.changes
            ),
            _MAX_SHOWN,
        )
        yield f"{format_quantity(kept, 'record')}; {changes}"
        return
    cut = sum(file.cut_bytes for file in diagnosis.plan.changes)
    lost = sum(file.cut_valid_records for file in diagnosis.plan.changes)
    if not diagnosis.plan.changes:
        yield f"all {format_quantity(records, 'record')}; there is nothing to remove"
        return
    kept = sum(file.kept_records for file in diagnosis.plan.files)
    yield (
        f"{format_quantity(kept, 'record')}; {format_quantity(cut, 'byte')} are removed, "
        f"{format_quantity(lost, 'complete record')} among them"
    )


def _format_log_heading(diagnosis: Diagnosis) -> str:
    files = diagnosis.report.files
    kinds = ", ".join(dict.fromkeys(file.format for file in files)) or "not read"
    parts = [kinds, format_quantity(len(files), "file"), format_size(sum(file.size for file in files))]
    if diagnosis.holder is not None:
        parts.append(f"open in {escape(diagnosis.holder)}, read up to a consistent end")
    elif diagnosis.live:
        parts.append("read up to a consistent end (--live)")
    parts += [] if diagnosis.redo is None else [f"with the redo log {escape(diagnosis.redo)}"]
    return f"{escape(diagnosis.path)}  ({', '.join(parts)})"


def find_log_state_word(diagnosis: Diagnosis) -> str:
    """Return the state of a log in the terms of `verify`."""
    if diagnosis.unstable_reason is not None:
        return "ok"
    words = {find_file_state_word(file) for file in diagnosis.report.files}
    if any(found.severity is Severity.ERROR for one in diagnosis.report.sets for found in one.findings):
        words.add("DAMAGED")
    if diagnosis.start == UNKNOWN:
        words.add("PARTIAL")
    if not diagnosis.is_healthy and words <= {"ok"}:  # problems that only the replay shows
        is_stopped = diagnosis.start == REFUSES or any(replay.stop is not None for replay in diagnosis.replays)
        words.add("DAMAGED" if is_stopped or diagnosis.rejected_records else "WARNING")
    return next((word for word in STATE_ORDER if word in words), "ok")


def render_diagnosis_text(
    diagnoses: DiagnosisReport, read_options: GivenReadOptions = NO_READ_OPTIONS, paint: Paint = paint_plain
) -> Iterator[str]:
    """Yield the lines of a diagnosis: one line for each healthy log, then every log that needs action."""
    for diagnosis in diagnoses.logs:
        if diagnosis.is_healthy:
            yield from _render_healthy(diagnosis, read_options, paint)
    for diagnosis in diagnoses.logs:
        if not diagnosis.is_healthy:
            yield ""
            yield from _render_unhealthy(diagnosis, read_options, paint)


def _render_healthy(diagnosis: Diagnosis, read_options: GivenReadOptions, paint: Paint) -> Iterator[str]:
    """Yield the line of a healthy log, and lines about an end that the server accepts and about warnings."""
    state = find_log_state_word(diagnosis)
    verb = "start" if diagnosis.start == OPEN else "starts"
    starts = f": {verb} {describe_whether_server_starts(diagnosis)}" if diagnosis.start != OPEN or state != "ok" else ""
    if diagnosis.unstable_reason is not None:
        starts = f": {describe_whether_server_starts(diagnosis)}"
    yield f"{_paint_state(diagnosis, paint)} {_format_log_heading(diagnosis)}{starts}"
    yield from _label_lines("engine", _describe_engine_commit_position(diagnosis))
    yield from _label_lines("loses", list(_limit_lines(list(describe_lost_ranges(diagnosis.lost)))))
    if state == "WARNING":
        warnings = [
            f"{escape(os.path.basename(path))} {format_offset(found.offset)}: {found.id}: {format_finding(found)}"
            for path, found in _iter_findings(diagnosis)
            if found.severity is Severity.WARNING
        ]
        yield from _label_lines("warning", list(_limit_lines(warnings)))
    hint = suggest_after_verify(diagnosis.report, read_options)
    if diagnosis.lost and hint is not None and " truncate-to-durable " in hint:
        yield f"{'do':<9} nothing: the server accepts this end. To cut it off anyway, review this plan:"
        yield f"            {hint}"


def _iter_findings(diagnosis: Diagnosis) -> Iterator[tuple[str, Finding]]:
    """Yield (path, finding) pairs of files and sets."""
    for file in diagnosis.report.files:
        yield from ((file.path, found) for found in file.findings)
    for set_report in diagnosis.report.sets:
        yield from ((set_report.path, found) for found in set_report.findings)


def _paint_state(diagnosis: Diagnosis, paint: Paint) -> str:
    word = find_log_state_word(diagnosis)
    return paint(word.ljust(9), STATE_STYLES[word])


def _render_unhealthy(diagnosis: Diagnosis, read_options: GivenReadOptions, paint: Paint) -> Iterator[str]:
    yield f"{_paint_state(diagnosis, paint)} {_format_log_heading(diagnosis)}"
    if (place := diagnosis.directory) is not None:
        owner = f"{escape(place.owner)}:{escape(place.group)}"
        yield f"directory owner {owner}, mode {place.mode:04o}, {format_size(place.free_bytes)} free"
    answer = describe_whether_server_starts(diagnosis)
    if diagnosis.start == REFUSES and answer.startswith(_START_LABELS[REFUSES]):
        answer = paint(_START_LABELS[REFUSES], "error") + answer.removeprefix(_START_LABELS[REFUSES])
    yield f"start     {answer}"
    yield from _label_lines("replay", [text] if (text := describe_replay_stop(diagnosis)) else [])
    yield from _label_lines("engine", _describe_engine_commit_position(diagnosis))
    yield from _label_lines("loses", describe_losses(diagnosis))
    yield from _label_lines("keep", describe_kept(diagnosis))
    for number, step in enumerate(list_steps(diagnosis, read_options), start=1):
        yield f"{f'do {number}':<9} {step.what}"
        if step.command is not None:
            yield f"            {step.command}"
    yield from _label_lines("read", list_explain_commands(diagnosis)[:_MAX_SHOWN])


def _describe_engine_commit_position(diagnosis: Diagnosis) -> list[str]:
    """Return lines about the position up to which the storage engine has committed, where its files contain it."""
    found = (replay.details.get("storage_engine") for replay in diagnosis.replays)
    return [escape(str(details["text"])) for details in found if details]


def _label_lines(name: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{'' if number else name:<9} {line}"


# -- JSON --------------------------------------------------------------------------------------------------------------


def diagnosis_to_json(
    diagnoses: DiagnosisReport, version: str, read_options: GivenReadOptions = NO_READ_OPTIONS
) -> dict[str, Any]:
    """Return the value of `diagnose -O json`."""
    starts = [one.start for one in diagnoses.logs]
    return {
        "schema": SCHEMA,
        "tool": {"name": "binlogtool", "version": version},
        "logs": [_log_to_json(one, read_options) for one in diagnoses.logs],
        "failures": [failure_to_json(one) for one in diagnoses.failures],
        "summary": {
            "logs": len(diagnoses.logs),
            "well": sum(one.is_healthy for one in diagnoses.logs),
            "start": {name: starts.count(name) for name in _START_LABELS},
        },
    }


def _log_to_json(diagnosis: Diagnosis, read_options: GivenReadOptions) -> dict[str, Any]:
    files = diagnosis.report.files
    return {
        "path": diagnosis.path,
        "formats": list(dict.fromkeys(file.format for file in files)),
        "files": [file.path for file in files],
        "bytes": sum(file.size for file in files),
        "records": sum(file.records or 0 for file in files),
        "redo": diagnosis.redo,
        **({} if diagnosis.holder is None else {"holder": diagnosis.holder}),
        "live": diagnosis.live,
        "directory": _directory_to_json(diagnosis.directory),
        "state": find_log_state_word(diagnosis),
        **({"not_checked": list(diagnosis.unusable_files)} if diagnosis.unusable_files else {}),
        "start": diagnosis.start,
        "why": describe_whether_server_starts(diagnosis),
        **({"replay": text} if (text := describe_replay_stop(diagnosis)) else {}),
        "well": diagnosis.is_healthy,
        "rejected": diagnosis.rejected_records,
        "storage_engine": [
            details for replay in diagnosis.replays if (details := replay.details.get("storage_engine"))
        ],
        "lost": [one.to_json_value() for one in diagnosis.lost],
        "losses": [{"file": file, **finding_to_value(loss)} for file, loss in diagnosis.losses],
        "findings": {level.label: diagnosis.report.count_findings(level) for level in Severity},
        "plan": None if diagnosis.plan is None else diagnosis.plan.to_json_value(),
        "steps": [step._asdict() for step in list_steps(diagnosis, read_options)],
        "read": list_explain_commands(diagnosis),
    }


def _directory_to_json(place: DirectoryFacts | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {**pick_members(place, "owner", "group"), "mode": f"{place.mode:04o}", "free_bytes": place.free_bytes}


def render_diagnosis_markdown(diagnoses: DiagnosisReport, read_options: GivenReadOptions = NO_READ_OPTIONS) -> str:
    """Render the diagnoses as Markdown, for a ticket."""
    return "\n".join(_render_markdown_lines(diagnoses, read_options)) + "\n"


def _render_markdown_lines(diagnoses: DiagnosisReport, read_options: GivenReadOptions) -> Iterator[str]:
    yield "## binlogtool diagnose"
    yield ""
    yield "| log | starts | in order |"
    yield "|---|---|---|"
    for one in diagnoses.logs:
        yield (
            f"| {escape_markdown(one.path)} | {escape_markdown(describe_whether_server_starts(one))} | "
            f"{'yes' if one.is_healthy else '**no**'} |"
        )
    for failure in diagnoses.failures:
        yield f"| {escape_markdown(failure.path)} | not read | {escape_markdown(failure.message)} |"
    for one in diagnoses.logs:
        if not one.is_healthy:
            yield from _render_markdown_log(one, read_options)


def _render_markdown_log(diagnosis: Diagnosis, read_options: GivenReadOptions) -> Iterator[str]:
    yield ""
    yield f"### {escape_markdown(diagnosis.path)}"
    yield ""
    if diagnosis.redo is not None:
        yield f"* read with the redo log {escape_markdown(diagnosis.redo)}"
    for name, lines in (
        ("replay", iter([text] if (text := describe_replay_stop(diagnosis)) else [])),
        ("engine", iter(_describe_engine_commit_position(diagnosis))),
        ("loses", describe_losses(diagnosis)),
        ("keep", describe_kept(diagnosis)),
    ):
        yield from (f"* {name}: {escape_markdown(line.strip())}" for line in lines)
    for number, step in enumerate(list_steps(diagnosis, read_options), start=1):
        yield ""
        yield f"{number}. {escape_markdown(step.what)}"
        if step.command is not None:
            fence = "````" if "```" in step.command else "```"
            yield from ("", f"{fence}sh", step.command, fence)


def describe_lost_ranges(lost_ranges: Sequence[LostRange]) -> Iterator[str]:
    """Yield a line about each range that damage or a torn end took."""
    for lost in lost_ranges:
        place = f"{escape(os.path.basename(lost.file))} {format_offset(lost.offset)}"
        size = format_quantity(lost.length, "byte")
        after = "" if lost.last is None else f" after {lost.unit} {escape(lost.last)}"
        may_be_cut = "" if lost.may_be_cut is None else f"; perhaps the end of {lost.unit} {escape(lost.may_be_cut)}"
        if lost.names:
            end = " at the end" if lost.is_end else ""
            yield f"{place}: {format_lost_names(lost)} ({size}{end} that cannot be read){may_be_cut}"
        else:
            yield f"{place}: {size} that cannot be read{after}{may_be_cut}"


def format_lost_names(lost: LostRange) -> str:
    """Return what a range lost, with its unit: LSN 23, transaction 1-2-7."""
    return f"{lost.unit} {escape(', '.join(lost.names))}"


def describe_lost_records_by_range(
    manifest: Manifest, damage_findings: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, int], str]:
    """Return (file, offset) -> text with the transactions or numbers that damaged ranges of the input took.

    Args:
        damage_findings: Findings of the manifest about damaged ranges.
    """
    names: dict[tuple[str, int], str] = {}
    formats = {one.path: one.format for one in manifest.inputs if one.format}
    for path in dict.fromkeys(one["file"] for one in damage_findings):
        ranges = [
            make_finding("damaged-range", f["offset"], f["length"], "") for f in damage_findings if f["file"] == path
        ]
        if path == "-" or is_url(path) or path not in formats:
            continue
        with suppress(BinlogtoolError):
            for lost in find_lost_ranges(path, formats[path], ranges, ReadOptions()):
                if lost.names:
                    names[path, lost.offset] = f", {format_lost_names(lost)}"
    return names


# --- Reports of replay predictions ---


_MAX_DETAIL_LENGTH = 160
_DETAILS_WITH_OWN_LINES = ("force", "not_comparable")
"""Details that are shown on separate lines."""

MAX_OBJECTS = 40
"""Maximum number of objects that the text lists; JSON contains all."""


def replay_to_json(replay: ReplayResult) -> dict[str, Any]:
    """Return the value of `replay-dry-run -O json`.

    Members beyond the contract: path, starts, read, findings, rules, details.
    """
    stop = replay.stop
    return {
        "schema": REPLAY_SCHEMA,
        **pick_members(replay, "path", "format", "policy", "starts"),
        "decisions": dict(replay.decisions),
        "reasons": dict(replay.reasons),
        "objects": [_tally_to_json(tally, unknown=tally.name in replay.unknown) for tally in replay.objects],
        "stops_at": None if stop is None else pick_members(stop, "file", "offset", "why"),
        "position": dict(replay.position),
        "digest": replay.digest,
        "read": list(replay.read),
        "findings": [{"file": file, **finding_to_value(found)} for file, found in replay.findings],
        "rules": dict(replay.rules),
        **({"details": dict(replay.details)} if replay.details else {}),
        **({"unknown": dict(replay.unknown)} if replay.unknown else {}),
    }


def _tally_to_json(tally: ObjectTally, *, unknown: bool) -> dict[str, Any]:
    state = {} if tally.keys is None and not unknown else pick_members(tally, "keys", "digest")
    return {"name": tally.name, **tally.counts, **pick_members(tally, "first_seq", "last_seq"), **state}


_TIME = TimeFormatter()


def decision_to_json(decision: ReplayDecision) -> dict[str, Any]:
    """Return the value of one line of `-O jsonl`."""
    value = {**decision._asdict(), "time": None if decision.time is None else _TIME(decision.time)}
    value["decision"] = value.pop("verb")
    return value


def render_decision(decision: ReplayDecision, rules: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of `--explain`."""
    name = "" if decision.object is None else f" {escape(decision.object)}"
    yield (
        f"{escape(decision.file)}: record {format_count(decision.record)} at "
        f"{format_offset(decision.offset)}: {escape(decision.type)}{name}"
    )
    yield f"{decision.verb:<8} {decision.reason}"
    yield f"rule     {escape(rules[decision.reason])}"


def render_replay_text(replay: ReplayResult, read_options: GivenReadOptions = NO_READ_OPTIONS) -> Iterator[str]:
    """Yield the lines of a replay."""
    yield f"replay    {escape(replay.path)}  ({replay.format}, policy {replay.policy})"
    if "force" in replay.details:
        yield f"force     {escape(replay.details['force'])}"
    yield from _render_start_and_stop(replay)
    yield f"decisions {' · '.join(f'{verb} {format_count(replay.decisions[verb])}' for verb in VERBS)}"
    for reason, records in replay.reasons.items():
        yield f"  {format_count(records):>12}  {reason}: {escape(replay.rules[reason])}"
    yield from _render_objects(replay.objects, replay.unknown)
    yield f"position  {escape(json.dumps(replay.position, default=str))}"
    if replay.digest is not None:
        yield f"digest    {replay.digest}"
    for name, value in replay.details.items():
        if name not in _DETAILS_WITH_OWN_LINES:
            yield f"detail    {escape(name).replace('_', ' ')}  {_format_detail(value)}"
    yield from _render_digest_doubts(replay.details.get("not_comparable", {}))
    for file, finding in replay.findings:
        if finding.severity is not Severity.NOTE:
            yield (
                f"  {finding.severity.label:<8} {escape(file)} {format_offset(finding.offset)}  "
                f"{finding.id}  {format_finding(finding)}"
            )
    yield from (f"next      {text}" for text in suggest_after_replay(replay, read_options))


def _format_detail(value: Any) -> str:
    """Return a detail as JSON, shortened to one line."""
    text = escape(encode_document(value, indent=-1).decode().strip())
    return text if len(text) <= _MAX_DETAIL_LENGTH else f"{text[:_MAX_DETAIL_LENGTH]} … (-O json has all)"


def _render_start_and_stop(replay: ReplayResult) -> Iterator[str]:
    if replay.incomplete_reason is not None:
        yield f"PARTIAL   {escape(replay.incomplete_reason)}; the results below are about the part before that"
    if replay.starts is not None:
        yield f"starts    {'yes' if replay.starts else 'NO'}"
    if replay.stop is not None:
        yield f"stops     {escape(replay.stop.file)} at {format_offset(replay.stop.offset)}: {escape(replay.stop.why)}"


def _render_objects(objects: Sequence[ObjectTally], unknown: Mapping[str, str]) -> Iterator[str]:
    for tally in objects[:MAX_OBJECTS]:
        counts = " ".join(f"{verb} {format_count(n)}" for verb, n in tally.counts.items() if n) or "nothing"
        seq = "" if tally.first_seq is None else f"  seq {tally.first_seq}..{tally.last_seq}"
        digest = f", digest {tally.digest[:16]}" if tally.digest else ""
        rows = "" if tally.keys is None else f"  {format_quantity(tally.keys, 'row')} at the end{digest}"
        rows = f"  rows at the end unknown: {escape(unknown[tally.name])}" if tally.name in unknown else rows
        yield f"  {escape(tally.name)}: {counts}{seq}{rows}"
    if len(objects) > MAX_OBJECTS:
        yield f"  … {format_count(len(objects) - MAX_OBJECTS)} more objects (-O json has all)"


def _render_digest_doubts(doubts: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each object whose digest may differ from that of the server's rows, with the reason."""
    for name, why in list(doubts.items())[:MAX_OBJECTS]:
        yield f"doubt     {escape(name)}: {escape(why)}"
    if len(doubts) > MAX_OBJECTS:
        yield f"  … {format_count(len(doubts) - MAX_OBJECTS)} more (-O json has all)"


def compare_replay_states(
    left_replays: Sequence[ReplayResult], right_replays: Sequence[ReplayResult]
) -> list[dict[str, Any]]:
    """Return the objects in which two states differ: name, and keys and digest on both sides.

    Objects whose rows are not all known on one side are also listed (`unknown`), because they may differ.
    """
    left, right = (_collect_states(side) for side in (left_replays, right_replays))
    result = []
    for name in sorted(left | right):
        left_state, right_state = left.get(name), right.get(name)
        unknown = (None, None) in (left_state, right_state)
        if left_state != right_state or unknown:
            sides = (("keys", "other_keys", 0), ("digest", "other_digest", 1))
            values = {a: left_state and left_state[i] for a, _, i in sides} | {
                b: right_state and right_state[i] for _, b, i in sides
            }
            result.append({"name": name, **values} | ({"unknown": True} if unknown else {}))
    return result


def _collect_states(replays: Sequence[ReplayResult]) -> dict[str, tuple[int | None, str | None]]:
    """Return (keys, digest) per object; empty objects are left out, unknown ones have None for both."""
    return {o.name: (o.keys, o.digest) for one in replays for o in one.objects if o.keys or o.name in one.unknown}


def render_state_differences(
    differences: Sequence[Mapping[str, Any]], left_name: str, right_name: str
) -> Iterator[str]:
    """Yield the lines of `--compare`."""
    yield f"compare   A = {escape(left_name)}, B = {escape(right_name)}"
    if not differences:
        yield "          A and B end with the same state"
        return
    yield f"          A and B differ in {format_quantity(len(differences), 'object')}"
    for difference in differences[:MAX_OBJECTS]:
        empty_text = "unknown" if difference.get("unknown") else "nothing"
        a, b = (empty_text if n is None else f"{n:,} live" for n in _get_sides(difference, "keys"))
        digest_a, digest_b = ("-" if d is None else str(d)[:16] for d in _get_sides(difference, "digest"))
        yield f"  {escape(str(difference['name']))}: A {a}, B {b}; digests A {digest_a}, B {digest_b}"
    if len(differences) > MAX_OBJECTS:
        yield f"  … {format_quantity(len(differences) - MAX_OBJECTS, 'more object')} (-O json has all)"


def suggest_after_comparison(
    differences: Sequence[Mapping[str, Any]],
    sides: Sequence[tuple[Sequence[ReplayResult], Sequence[str]]],
    read_options: GivenReadOptions = NO_READ_OPTIONS,
) -> Iterator[str]:
    """Yield, for each side, the command that shows the changes to the first object that differs and that it has.

    Args:
        sides: The replays of each side, and the paths as the user named them.
    """
    differing = [str(one["name"]) for one in differences if not str(one["name"]).startswith("(")]
    shared = [name for name in differing if all(_find_replay(replays, name) for replays, _ in sides)]
    for replays, paths in sides:
        name = next((one for one in (*shared, *differing) if _find_replay(replays, one)), None)
        replay = None if name is None else _find_replay(replays, name)
        if name is None or replay is None:
            continue
        if any(path.endswith(READABLE_COMPRESSED_SUFFIXES) for path in replay.read):
            paths = replay.read  # the command would not read the compressed files of a directory
        if len(paths) <= _MAX_NAMED_FILES:
            command = "dump" if formats.load_format(replay.format).tables is None else "rows"
            yield read_options.format_command_with_options(command, "--object", name, *paths)


_MAX_NAMED_FILES = 20
"""Number of compressed files that a suggested command names at most."""


def _find_replay(replays: Sequence[ReplayResult], name: str) -> ReplayResult | None:
    """Return the replay with an object of this name."""
    return next((one for one in replays if any(tally.name == name for tally in one.objects)), None)


def _get_sides(difference: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    return difference[name], difference[f"other_{name}"]
