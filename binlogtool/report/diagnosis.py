"""Render a diagnosis: does the server start, what is lost, what can be kept, and the commands in order."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from binlogtool.findings import Severity
from binlogtool.formats.replay_rules import Stop
from binlogtool.log.body_json import finding_json
from binlogtool.log.source import is_url
from binlogtool.recovery.diagnosis_result import OPEN, REFUSES, STARTS, UNKNOWN, Diagnoses, Diagnosis, not_checked
from binlogtool.recovery.plan import Plan
from binlogtool.render.escape import escape
from binlogtool.report.following import NOTHING_GIVEN, Given, after_plan, after_replay, after_verify, plain_path
from binlogtool.report.json import failure_json
from binlogtool.report.markdown import plain
from binlogtool.report.words import command, count, counted, place, sentence, shell_quoted, size

SCHEMA = "binlogtool/diagnose/1"
_SHOWN = 5
"""Losses, reasons and findings to read about that the text shows of each log; JSON has all."""


class Step(NamedTuple):
    """One thing to do. Serialised under these names.

    Attributes:
        command: Ready to be pasted; None where it is not a command.
    """

    what: str
    command: str | None


# -- what to do --------------------------------------------------------------------------------------------------------


def steps(one: Diagnosis, given: Given = NOTHING_GIVEN) -> list[Step]:
    """Return the steps in order, from the safe copy to the undo command; none for a healthy log."""
    if one.well:
        return []
    given = given.also("--redo", one.redo)
    hint = after_verify(one.report, given)
    if one.start == UNKNOWN and (one.plan is None or one.plan.unread):
        return [] if hint is None else [Step("what is missing", hint)]
    looked = [] if hint is None or " hexdump-annotate " not in hint else [Step("look at the first damage", hint)]
    return [*_copy(one.path), *looked, *_mending(one, given)]


def _copy(path: str) -> list[Step]:
    """Return the step that copies the log before any repair."""
    if is_url(path) or path == "-":
        return []
    base = path.rstrip("/") or path
    names = (f"{base}.copy{number}" for number in ("", *range(2, 100)))
    free = next((name for name in names if not os.path.lexists(name)), f"{base}.copy")
    words = ("cp", "-a", "--", path, free)
    return [Step("stop the server, and keep a copy", " ".join(map(shell_quoted, words)))]


def _mending(one: Diagnosis, given: Given) -> Iterator[Step]:
    plan = one.plan
    if (plan is None or plan.refused or not plan.changes) and (by_hand := _remedy(one)):
        yield from by_hand
        yield Step("what the server will do now", given.next("diagnose", path=one.path))
        yield Step("start the server", None)
        return
    hint = None if plan is None else after_plan(plan, given)
    if plan is None or hint is None:
        yield from (Step("no cut mends this; see", text) for text in _after_replays(one, given))
        return
    if plan.refused:
        yield from _beside(one, plan, hint, given)
        return
    flags = ("--fix-meta",) if plan.asked.fix_meta else ()
    yield Step("read the plan; it changes nothing", given.next("truncate-to-durable", *flags, path=one.path))
    yield Step("carry it out", hint)
    yield Step("what the server will do now", given.next("replay-dry-run", path=one.path))
    yield Step("start the server", None)
    if any(file.made_like is None for file in plan.changes):
        yield Step("if it should be as it was", _undo(plan))


def _remedy(one: Diagnosis) -> list[Step]:
    """Return the steps that make the server start according to the format."""
    told = (replay.details.get("startup", {}).get("remedy", ()) for replay in one.replays)
    return [Step(step["what"], step["command"]) for steps_ in told for step in steps_]


def _beside(one: Diagnosis, plan: Plan, hint: str, given: Given) -> Iterator[Step]:
    """Yield the steps where a cut in place is refused: a salvaged copy replaces the file, or nothing does."""
    words = shlex.split(hint)
    if "--to-file" not in words:
        yield Step("a cut would lose what is durable, and is refused; see", hint)
        return
    new, old = words[words.index("--to-file") + 1], words[-1]
    yield Step("a cut would lose what is durable: write a copy that keeps it", hint)
    check = given.next("verify", "--severity", "gap-in-sequence=warning", path=new)
    yield Step("check the copy: what was left out may show as a gap, a warning here; nothing else is wrong", check)
    yield Step("put it in the place of the log", " ".join(map(shell_quoted, ("cp", "--", new, old))))
    yield Step("what the server will do now", given.next("replay-dry-run", path=one.path))
    yield Step("start the server", None)


def _undo(plan: Plan) -> str:
    """Return the undo command; the undo file does not exist yet, so it is named by a pattern if no older one
    matches.
    """
    first = next(file for file in plan.changes if file.made_like is None)
    pattern = f"{first.path}.binlogtool-undo-"
    if glob.glob(f"{glob.escape(pattern)}*"):
        return command("undo", "--apply", "UNDO_FILE")
    return f"{command('undo', '--apply', plain_path(pattern))}*"


def _after_replays(one: Diagnosis, given: Given) -> list[str]:
    """Return the next commands for each log of the place."""
    return list(dict.fromkeys(text for replay in one.replays for text in after_replay(replay, given)))


def reading(one: Diagnosis) -> list[str]:
    """Return the `explain` commands for the errors that were found."""
    found = [f for f in one.report.findings if f.severity is Severity.ERROR]
    found += [f for replay in one.replays for _, f in replay.findings if f.severity is Severity.ERROR]
    return [command("explain", id_) for id_ in dict.fromkeys(f.id for f in found)]


# -- in words ----------------------------------------------------------------------------------------------------------

_STARTS = {
    STARTS: "yes",
    REFUSES: "NO",
    OPEN: "this log does not decide it",
    UNKNOWN: "cannot be said",
}


def start_words(one: Diagnosis) -> str:
    """Describe whether the server will start, and why not."""
    said = _STARTS[one.start]
    stop = next((replay.stop for replay in one.replays if replay.stop is not None), None)
    startup: dict[str, Any] = next((found for replay in one.replays if (found := replay.details.get("startup"))), {})
    if one.start == UNKNOWN:
        return f"{said}: {escape(_unknown(one))}"
    if one.start == REFUSES and "why" in startup:
        stop = Stop(startup["file"], startup["offset"], startup["why"])
    unchecked = escape("; ".join([*(text for replay in one.replays for text in not_checked(replay)), *one.unusable]))
    if one.unsettled is not None:
        return escape(one.unsettled)
    if one.start == OPEN and unchecked:
        return f"cannot be determined: {unchecked}"
    if one.start == STARTS and unchecked:
        said += f"; {unchecked}"
    if stop is None:
        return said
    verb = "it stops at" if one.start == REFUSES else "the replay stops at"
    at = "" if stop.offset is None else f" {place(stop.offset)}"
    return f"{said}: {verb} {escape(os.path.basename(stop.file))}{at}: {escape(stop.why)}"


def _unknown(one: Diagnosis) -> str:
    said = [one.trouble] if one.trouble else [failure.message for failure in one.report.failures]
    said += [replay.incomplete for replay in one.replays if replay.incomplete]
    if any(replay.encrypted for replay in one.replays):
        said.append("the log is encrypted; --keyfile reads it")
    return said[0] if said else "it could not be read to its end"


def loss_words(one: Diagnosis) -> Iterator[str]:
    """Yield lines about what the server would lose without an error."""
    for file, found in one.losses[:_SHOWN]:
        yield f"{escape(os.path.basename(file))} {place(found.offset)}: {sentence(found)}"
    if len(one.losses) > _SHOWN:
        yield f"… {count(len(one.losses) - _SHOWN)} more (-O json has all)"
    if one.rejected:
        yield f"{counted(one.rejected, 'record')} would be rejected"
    if not one.losses and not one.rejected:
        yield "nothing that it would not tell" if one.start != UNKNOWN else "cannot be said"


def keep_words(one: Diagnosis) -> Iterator[str]:
    """Yield lines about what can be kept, and what is removed."""
    records = sum(file.records or 0 for file in one.report.files)
    if one.plan is None:
        known = one.well or one.start != UNKNOWN
        yield f"all {counted(records, 'record')}" if known else f"{counted(records, 'provable record')} found"
        return
    if one.plan.refused:
        yield f"{counted(records, 'provable record')} found; a cut in place is refused:"
        yield from (f"  {escape(text)}" for text in one.plan.reasons[:_SHOWN])
        return
    cut = sum(file.cut_bytes for file in one.plan.changes)
    lost = sum(file.cut_valid_records for file in one.plan.changes)
    if not one.plan.changes:
        yield f"all {counted(records, 'record')}; there is nothing to cut"
        return
    kept = sum(file.kept_records for file in one.plan.files)
    yield f"{counted(kept, 'record')}; {counted(cut, 'byte')} go, {counted(lost, 'complete record')} among them"


def _head(one: Diagnosis) -> str:
    files = one.report.files
    kinds = ", ".join(dict.fromkeys(file.format for file in files)) or "not read"
    said = [kinds, counted(len(files), "file"), size(sum(file.size for file in files))]
    said += [] if one.holder is None else [f"held by {escape(one.holder)}"]
    said += [] if one.redo is None else [f"with the redo log {escape(one.redo)}"]
    return f"{escape(one.path)}  ({', '.join(said)})"


def diagnosis_text(found: Diagnoses, given: Given = NOTHING_GIVEN) -> Iterator[str]:
    """Yield the lines of a diagnosis: healthy logs in one line each, then every log that needs something."""
    for one in found.logs:
        if one.well:
            starts = f": starts {start_words(one)}" if one.start != OPEN else ""
            yield f"well      {_head(one)}{starts if one.unsettled is None else f': {start_words(one)}'}"
    for one in found.logs:
        if not one.well:
            yield ""
            yield from _ill(one, given)


def _ill(one: Diagnosis, given: Given) -> Iterator[str]:
    yield f"log       {_head(one)}"
    yield f"start     {start_words(one)}"
    yield from _labelled("loses", loss_words(one))
    yield from _labelled("keep", keep_words(one))
    for number, step in enumerate(steps(one, given), start=1):
        yield f"{f'do {number}':<9} {step.what}"
        if step.command is not None:
            yield f"            {step.command}"
    yield from _labelled("read", reading(one)[:_SHOWN])


def _labelled(name: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{'' if number else name:<9} {line}"


# -- for programs and tickets ------------------------------------------------------------------------------------------


def diagnosis_json(found: Diagnoses, version: str, given: Given = NOTHING_GIVEN) -> dict[str, Any]:
    """Return `diagnose -O json` as a value."""
    starts = [one.start for one in found.logs]
    return {
        "schema": SCHEMA,
        "tool": {"name": "binlogtool", "version": version},
        "logs": [_log_json(one, given) for one in found.logs],
        "failures": [failure_json(one) for one in found.failures],
        "summary": {
            "logs": len(found.logs),
            "well": sum(one.well for one in found.logs),
            "start": {name: starts.count(name) for name in _STARTS},
        },
    }


def _log_json(one: Diagnosis, given: Given) -> dict[str, Any]:
    files = one.report.files
    return {
        "path": one.path,
        "formats": list(dict.fromkeys(file.format for file in files)),
        "files": [file.path for file in files],
        "bytes": sum(file.size for file in files),
        "records": sum(file.records or 0 for file in files),
        "redo": one.redo,
        **({} if one.holder is None else {"holder": one.holder}),
        **({"not_checked": list(one.unusable)} if one.unusable else {}),
        "start": one.start,
        "why": start_words(one),
        "well": one.well,
        "rejected": one.rejected,
        "losses": [{"file": file, **finding_json(loss)} for file, loss in one.losses],
        "findings": {level.label: one.report.count(level) for level in Severity},
        "plan": None if one.plan is None else one.plan.as_value(),
        "steps": [step._asdict() for step in steps(one, given)],
        "read": reading(one),
    }


def diagnosis_markdown(found: Diagnoses, given: Given = NOTHING_GIVEN) -> str:
    """Render the diagnoses as Markdown, for a ticket."""
    return "\n".join(_markdown_lines(found, given)) + "\n"


def _markdown_lines(found: Diagnoses, given: Given) -> Iterator[str]:
    yield "## binlogtool diagnose"
    yield ""
    yield "| log | starts | in order |"
    yield "|---|---|---|"
    for one in found.logs:
        yield f"| {plain(one.path)} | {plain(start_words(one))} | {'yes' if one.well else '**no**'} |"
    for failure in found.failures:
        yield f"| {plain(failure.path)} | not read | {plain(failure.message)} |"
    for one in found.logs:
        if not one.well:
            yield from _markdown_log(one, given)


def _markdown_log(one: Diagnosis, given: Given) -> Iterator[str]:
    yield ""
    yield f"### {plain(one.path)}"
    yield ""
    if one.redo is not None:
        yield f"* read with the redo log {plain(one.redo)}"
    for name, lines in (("loses", loss_words(one)), ("keep", keep_words(one))):
        yield from (f"* {name}: {plain(line.strip())}" for line in lines)
    for number, step in enumerate(steps(one, given), start=1):
        yield ""
        yield f"{number}. {plain(step.what)}"
        if step.command is not None:
            fence = "````" if "```" in step.command else "```"
            yield from ("", f"{fence}sh", step.command, fence)
