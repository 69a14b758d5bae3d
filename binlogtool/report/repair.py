"""Render plans, repairs and their undo as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from binlogtool.recovery.plan import Applied, FilePlan, Plan, UndoPlan, Written
from binlogtool.render.escape import escape
from binlogtool.report.following import NOTHING_GIVEN, Given, after_plan
from binlogtool.report.left import left_lines
from binlogtool.report.text import SHOWN_PER_ID
from binlogtool.report.words import count, counted, place, shell_quoted


def plan_text(
    plan: Plan, *, writes: bool = False, names: bool = False, given: Given = NOTHING_GIVEN, saved: str | None = None
) -> Iterator[str]:
    """Yield the lines of a plan: what would change, then what stays.

    Args:
        will_apply: The plan is about to be carried out.
        list_names: Also list the files that are not logs.
        read_options: For the suggested command, see `GivenReadOptions`.
        plan_path: The file that the plan was saved in.
    """
    if len(plan.files) == 1:
        yield from _file_plan_lines(plan.files[0])
    else:
        for file in plan.changes:
            yield from _file_plan_lines(file)
        yield from _stay(file for file in plan.files if file.action == "none")
    yield from left_lines(plan.left, names=names)
    yield from _item_lines("refuse" if plan.refused else "note", plan.reasons)
    yield from _item_lines("note", plan.notes)
    if (plan.refused or not writes) and (hint := after_plan(plan, given, saved=saved)):
        yield f"next: {hint}"
    if plan.refused:
        yield "refused; nothing was changed"
    elif not plan.changes:
        yield "nothing to do; nothing was changed"
    elif not writes:
        yield "nothing was changed; --apply carries it out"


def _stay(files: Iterable[FilePlan]) -> Iterator[str]:
    """Yield one line for all files that do not change."""
    number = sizes = records = 0
    for file in files:
        number, sizes, records = number + 1, sizes + file.size, records + file.kept_records
    if number:
        counts = counted(sizes, "byte"), counted(records, "complete record")
        yield f"stay   {counted(number, 'file')}: nothing to cut, {counts[0]}, {counts[1]}"


def _file_plan_lines(file: FilePlan) -> Iterator[str]:
    yield f"plan   {escape(file.path)}: {_action(file)}"
    simple = {k: v for k, v in file.proof.items() if v is not None and not isinstance(v, (Mapping, list, tuple))}
    if simple:
        yield f"proof  {' · '.join(f'{escape(k)} {escape(_short(v))}'.replace('_', ' ') for k, v in simple.items())}"
    for name, items in file.proof.items():
        if isinstance(items, (list, tuple)):
            yield from _item_lines(name, items)
    if file.sha256_cut:
        yield f"sha256 kept {file.sha256_kept}  cut {file.sha256_cut}"


def _item_lines(name: str, items: Sequence[object]) -> Iterator[str]:
    """Yield a line for each item, at most `SHOWN_PER_ID` of a kind, as in the report of `verify`."""
    seen = Counter[str]()
    for item in items:
        kind = str(item["id"]) if isinstance(item, Mapping) and "id" in item else ""
        seen[kind] += 1
        if seen[kind] <= SHOWN_PER_ID:
            yield f"{escape(name):<6} {escape(_short(item))}"
    for kind, number in seen.items():
        if number > SHOWN_PER_ID:
            yield f"{escape(name):<6} … {count(number - SHOWN_PER_ID)} more {escape(kind)}".rstrip() + " (all: -O json)"


def _action(file: FilePlan) -> str:
    if file.action == "none":
        return f"nothing to cut, {counted(file.size, 'byte')}"
    if file.action == "remove":
        counts = counted(file.size, "byte"), count(file.cut_bytes), counted(file.cut_valid_records, "complete record")
        return "remove {}, {} of them content ({} among them)".format(*counts)
    if file.made_like is not None:
        return f"new file, {counted(file.result_size, 'byte')}"
    new = sum(len(p.data) for p in file.pieces if p.data is not None)
    if file.action == "rewrite" and not file.cut_bytes:
        return f"{counted(file.size, 'byte')} to {counted(file.result_size, 'byte')}, {count(new)} of them new"
    at = file.pieces[0].end if file.action == "truncate" else file.durable_end
    what = f"cut {count(file.cut_bytes)} of {counted(file.size, 'byte')} at {place(at)}"
    more = f", write {counted(new, 'byte')}" if new else ""
    more += f", grow to {counted(file.result_size, 'byte')}" if file.result_size > file.size else ""
    return f"{what}{more} ({counted(file.cut_valid_records, 'complete record')} among them)"


def _short(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    if isinstance(value, Mapping):
        at = f"{place(value['offset'])} " if isinstance(value.get("offset"), int) else ""
        said = [str(value[name]) for name in ("id", "message") if name in value]
        return at + (": ".join(said) if said else ", ".join(f"{k} {_short(v)}" for k, v in value.items()))
    return str(value)


def applied_text(done: Applied) -> Iterator[str]:
    """Yield the lines about what was written."""
    yield from (f"note   {escape(note)}" for note in done.notes)
    yield from (line for file in done.files for line in _written_lines("wrote", file))
    if done.undo is not None:
        yield f"undo   binlogtool undo --apply {shell_quoted(done.undo)}"


def undo_text(plan: UndoPlan, *, writes: bool = False) -> Iterator[str]:
    """Yield the lines of what `undo` would do."""
    yield f"undo   {escape(plan.undo)}: made {escape(plan.made)}, {escape(plan.state)}"
    for path, action, back in plan.files:
        sizes = f"{counted(back.size_before, 'byte')} to {counted(back.size_after, 'byte')}"
        yield f"plan   {escape(path)}: {'restore, ' + sizes if action == 'restore' else 'nothing to do'}"
    for reason in plan.reasons:
        yield f"refuse {escape(reason)}"
    if plan.reasons:
        yield "refused; nothing was changed"
    elif all(action == "none" for _, action, _ in plan.files):
        yield "nothing to do; nothing was changed"
    elif not writes:
        yield "nothing was changed; --apply carries it out"


def undo_applied_text(done: Applied) -> Iterator[str]:
    """Yield the lines about what was undone."""
    return (line for file in done.files for line in _written_lines("wrote", file))


def _written_lines(word: str, file: Written) -> Iterator[str]:
    yield f"{word:<6} {escape(file.path)}"
    for when, size, digest in (
        ("before", file.size_before, file.sha256_before), ("after", file.size_after, file.sha256_after)
    ):  # fmt: skip
        yield f"{when:<6} {counted(size, 'byte')}, sha256 {digest}" if digest else f"{when:<6} no file"


def written_json(file: Written) -> dict[str, Any]:
    """Return one changed file."""
    return dict(file._asdict())


def undo_json(plan: UndoPlan, done: Applied | None) -> dict[str, Any]:
    """Return `undo -O json` as a value."""
    return {
        "schema": "binlogtool/undo/1",
        "undo": plan.undo,
        "state": plan.state,
        "made": plan.made,
        "refused": bool(plan.reasons),
        "reasons": list(plan.reasons),
        "files": [{"action": action, **written_json(back)} for _, action, back in plan.files],
        **({"applied": True} if done is not None else {}),
    }
