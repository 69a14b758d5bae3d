"""Render replays as text and as JSON (binlogtool/replay/1)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from binlogtool.findings import Severity
from binlogtool.formats.replay_rules import VERBS
from binlogtool.log.body_json import finding_json
from binlogtool.log.plain import TimeText
from binlogtool.recovery.replay_result import SCHEMA, Decision, Replayed, Tally
from binlogtool.render.escape import escape
from binlogtool.report.following import NOTHING_GIVEN, Given, after_replay
from binlogtool.report.json import document
from binlogtool.report.words import count, place, sentence

_LINE = 160
_TOLD = ("force", "not_comparable")
"""Details that have lines of their own."""

MOST_OBJECTS = 40
"""Objects that the text form lists; JSON has all."""


def replay_json(one: Replayed) -> dict[str, Any]:
    """Return `replay-dry-run -O json` as a value. Members beyond the contract: path, starts, read, findings, rules,
    details.
    """
    stop = one.stop
    return {
        "schema": SCHEMA,
        "path": one.path,
        "format": one.format,
        "policy": one.policy,
        "starts": one.starts,
        "decisions": dict(one.decisions),
        "reasons": dict(one.reasons),
        "objects": [_object(tally, unknown=tally.name in one.unknown) for tally in one.objects],
        "stops_at": None if stop is None else {"file": stop.file, "offset": stop.offset, "why": stop.why},
        "position": dict(one.position),
        "digest": one.digest,
        "read": list(one.read),
        "findings": [{"file": file, **finding_json(found)} for file, found in one.findings],
        "rules": dict(one.rules),
        **({"details": dict(one.details)} if one.details else {}),
        **({"unknown": dict(one.unknown)} if one.unknown else {}),
    }


def _object(tally: Tally, *, unknown: bool) -> dict[str, Any]:
    state = {} if tally.keys is None and not unknown else {"keys": tally.keys, "digest": tally.digest}
    return {
        "name": tally.name,
        **tally.counts,
        "first_seq": tally.first_seq,
        "last_seq": tally.last_seq,
        **state,
    }


_TIME = TimeText()


def decision_json(one: Decision) -> dict[str, Any]:
    """Return one line of `-O jsonl` as a value."""
    value = {**one._asdict(), "time": None if one.time is None else _TIME(one.time)}
    value["decision"] = value.pop("verb")
    return value


def explained_text(one: Decision, rules: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of `--explain`."""
    name = "" if one.object is None else f" {escape(one.object)}"
    yield f"{escape(one.file)}: record {count(one.record)} at {place(one.offset)}: {escape(one.type)}{name}"
    yield f"{one.verb:<8} {one.reason}"
    yield f"rule     {escape(rules[one.reason])}"


def replay_text(one: Replayed, given: Given = NOTHING_GIVEN) -> Iterator[str]:
    """Yield the lines of a replay."""
    yield f"replay    {escape(one.path)}  ({one.format}, policy {one.policy})"
    if "force" in one.details:
        yield f"force     {escape(one.details['force'])}"
    yield from _start_lines(one)
    yield f"decisions {' · '.join(f'{verb} {count(one.decisions[verb])}' for verb in VERBS)}"
    for reason, records in one.reasons.items():
        yield f"  {count(records):>12}  {reason}: {escape(one.rules[reason])}"
    yield from _object_lines(one.objects, one.unknown)
    yield f"position  {escape(json.dumps(one.position, default=str))}"
    if one.digest is not None:
        yield f"digest    {one.digest}"
    for name, value in one.details.items():
        if name not in _TOLD:
            yield f"detail    {escape(name).replace('_', ' ')}  {_short(value)}"
    yield from _doubt_lines(one.details.get("not_comparable", {}))
    for file, found in one.findings:
        if found.severity is not Severity.NOTE:
            yield f"  {found.severity.label:<8} {escape(file)} {place(found.offset)}  {found.id}  {sentence(found)}"
    yield from (f"next      {text}" for text in after_replay(one, given))


def _short(value: Any) -> str:
    """Return a detail as JSON, shortened to one line."""
    text = escape(document(value, indent=-1).decode().strip())
    return text if len(text) <= _LINE else f"{text[:_LINE]} … (-O json has all)"


def _start_lines(one: Replayed) -> Iterator[str]:
    if one.incomplete is not None:
        yield f"PARTIAL   {escape(one.incomplete)}; what follows is about the part before"
    if one.starts is not None:
        yield f"starts    {'yes' if one.starts else 'NO'}"
    if one.stop is not None:
        yield f"stops     {escape(one.stop.file)} at {place(one.stop.offset)}: {escape(one.stop.why)}"


def _object_lines(objects: Sequence[Tally], unknown: Mapping[str, str]) -> Iterator[str]:
    for tally in objects[:MOST_OBJECTS]:
        counts = " ".join(f"{verb} {count(n)}" for verb, n in tally.counts.items() if n) or "nothing"
        seq = "" if tally.first_seq is None else f"  seq {tally.first_seq}..{tally.last_seq}"
        keys = "" if tally.keys is None else f"  {count(tally.keys)} live  {(tally.digest or '')[:16]}"
        keys = f"  unknown live: {escape(unknown[tally.name])}" if tally.name in unknown else keys
        yield f"  {escape(tally.name)}: {counts}{seq}{keys}"
    if len(objects) > MOST_OBJECTS:
        yield f"  … {count(len(objects) - MOST_OBJECTS)} more objects (-O json has all)"


def _doubt_lines(doubts: Mapping[str, str]) -> Iterator[str]:
    """Yield the objects whose digest is not that of the server's rows, and why."""
    for name, why in list(doubts.items())[:MOST_OBJECTS]:
        yield f"doubt     {escape(name)}: {escape(why)}"
    if len(doubts) > MOST_OBJECTS:
        yield f"  … {count(len(doubts) - MOST_OBJECTS)} more (-O json has all)"


def differences(one: Sequence[Replayed], other: Sequence[Replayed]) -> list[dict[str, Any]]:
    """Return the objects in which two states differ: name, and keys and digest on both sides.

    Objects whose rows are not all known on a side are listed, too (`unknown`), because they may differ.
    """
    left, right = (_states(side) for side in (one, other))
    result = []
    for name in sorted(left | right):
        mine, theirs = left.get(name), right.get(name)
        unknown = (None, None) in (mine, theirs)
        if mine != theirs or unknown:
            sides = (("keys", "other_keys", 0), ("digest", "other_digest", 1))
            values = {a: mine and mine[i] for a, _, i in sides} | {b: theirs and theirs[i] for _, b, i in sides}
            result.append({"name": name, **values} | ({"unknown": True} if unknown else {}))
    return result


def _states(replays: Sequence[Replayed]) -> dict[str, tuple[int | None, str | None]]:
    """Return (keys, digest) per object; empty objects are left out, unknown ones have None for both."""
    return {o.name: (o.keys, o.digest) for one in replays for o in one.objects if o.keys or o.name in one.unknown}


def difference_text(differences: Sequence[Mapping[str, Any]], one: str, other: str) -> Iterator[str]:
    """Yield the lines of `--compare`."""
    if not differences:
        yield f"compare   {escape(one)} and {escape(other)} leave the same state"
        return
    yield f"compare   {escape(one)} and {escape(other)} differ in {count(len(differences))} object(s)"
    for difference in differences:
        none = "unknown" if difference.get("unknown") else "nothing"
        keys = " and ".join(none if n is None else f"{n:,} live" for n in _both(difference, "keys"))
        digests = " and ".join("-" if d is None else str(d)[:16] for d in _both(difference, "digest"))
        yield f"  {escape(str(difference['name']))}: {keys}; digests {digests}"


def _both(difference: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    return difference[name], difference[f"other_{name}"]
