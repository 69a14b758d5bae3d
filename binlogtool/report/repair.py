"""Render plans, repairs and their undo as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from binlogtool.recovery.plan import FilePlan, RepairPlan, RepairResult, UndoPlan, WrittenFile
from binlogtool.render.escape import escape
from binlogtool.report.following import NO_READ_OPTIONS, GivenReadOptions, suggest_after_plan
from binlogtool.report.left import render_skipped_files
from binlogtool.report.text import MAX_SHOWN_PER_ID
from binlogtool.report.words import format_count, format_offset, format_quantity, quote_for_shell


def render_plan_text(
    plan: RepairPlan,
    *,
    will_apply: bool = False,
    list_names: bool = False,
    read_options: GivenReadOptions = NO_READ_OPTIONS,
    plan_path: str | None = None,
) -> Iterator[str]:
    """Yield the lines of a plan: what would change, then what stays.

    Args:
        will_apply: The plan is about to be carried out.
        list_names: Also list the files that are not logs.
        read_options: For the suggested command, see `GivenReadOptions`.
        plan_path: The file that the plan was saved in.
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
        yield "nothing was changed; --apply carries it out"


def _render_unchanged(files: Iterable[FilePlan]) -> Iterator[str]:
    """Yield one line for all files that do not change."""
    file_count = sizes = records = 0
    for file in files:
        file_count, sizes, records = file_count + 1, sizes + file.size, records + file.kept_records
    if file_count:
        counts = format_quantity(sizes, "byte"), format_quantity(records, "complete record")
        yield f"stay   {format_quantity(file_count, 'file')}: nothing to cut, {counts[0]}, {counts[1]}"


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


def _render_items(name: str, items: Sequence[object]) -> Iterator[str]:
    """Yield a line for each item, at most `SHOWN_PER_ID` of a kind, as in the report of `verify`."""
    seen = Counter[str]()
    for item in items:
        kind = str(item["id"]) if isinstance(item, Mapping) and "id" in item else ""
        seen[kind] += 1
        if seen[kind] <= MAX_SHOWN_PER_ID:
            yield f"{escape(name):<6} {escape(_format_value(item))}"
    for kind, number in seen.items():
        if number > MAX_SHOWN_PER_ID:
            yield (
                f"{escape(name):<6} … {format_count(number - MAX_SHOWN_PER_ID)} more {escape(kind)}".rstrip()
                + " (all: -O json)"
            )


def _describe_action(file: FilePlan) -> str:
    if file.action == "none":
        return f"nothing to cut, {format_quantity(file.size, 'byte')}"
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
    if file.action == "rewrite" and not file.cut_bytes:
        return (
            f"{format_quantity(file.size, 'byte')} to {format_quantity(file.result_size, 'byte')}, "
            f"{format_count(new_bytes)} of them new"
        )
    at = file.pieces[0].end if file.action == "truncate" else file.durable_end
    cut_text = f"cut {format_count(file.cut_bytes)} of {format_quantity(file.size, 'byte')} at {format_offset(at)}"
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


def render_applied_text(applied: RepairResult) -> Iterator[str]:
    """Yield the lines about what was written."""
    yield from (f"note   {escape(note)}" for note in applied.notes)
    yield from (line for file in applied.files for line in _render_written_file("wrote", file))
    if applied.undo is not None:
        yield f"undo   binlogtool undo --apply {quote_for_shell(applied.undo)}"


def render_undo_text(plan: UndoPlan, *, will_apply: bool = False) -> Iterator[str]:
    """Yield the lines of what `undo` would do."""
    yield f"undo   {escape(plan.undo)}: made {escape(plan.made)}, {escape(plan.state)}"
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
        yield "nothing was changed; --apply carries it out"


def render_undo_applied_text(applied: RepairResult) -> Iterator[str]:
    """Yield the lines about what was undone."""
    return (line for file in applied.files for line in _render_written_file("wrote", file))


def _render_written_file(word: str, file: WrittenFile) -> Iterator[str]:
    yield f"{word:<6} {escape(file.path)}"
    for when, size, digest in (
        ("before", file.size_before, file.sha256_before), ("after", file.size_after, file.sha256_after)
    ):  # fmt: skip
        yield f"{when:<6} {format_quantity(size, 'byte')}, sha256 {digest}" if digest else f"{when:<6} no file"


def written_file_to_json(file: WrittenFile) -> dict[str, Any]:
    """Return one changed file."""
    return dict(file._asdict())


def undo_to_json(plan: UndoPlan, applied: RepairResult | None) -> dict[str, Any]:
    """Return `undo -O json` as a value."""
    return {
        "schema": "binlogtool/undo/1",
        "undo": plan.undo,
        "state": plan.state,
        "made": plan.made,
        "refused": bool(plan.reasons),
        "reasons": list(plan.reasons),
        "files": [{"action": action, **written_file_to_json(back)} for _, action, back in plan.files],
        **({"applied": True} if applied is not None else {}),
    }
