"""Render replays as text and as JSON (binlogtool/replay/1)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from binlogtool import formats
from binlogtool.core.json_text import encode_document, finding_to_value
from binlogtool.core.progress import READABLE_COMPRESSED_SUFFIXES
from binlogtool.findings import Severity
from binlogtool.format_api.json_values import TimeFormatter
from binlogtool.format_api.replay import VERBS
from binlogtool.prediction.replay import SCHEMA, ObjectTally, ReplayDecision, ReplayResult
from binlogtool.report.verify_and_plan_text import NO_READ_OPTIONS, GivenReadOptions, suggest_after_replay
from binlogtool.report.wording import format_count, format_finding, format_offset, format_quantity
from binlogtool.terminal.escape import escape

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
        "schema": SCHEMA,
        "path": replay.path,
        "format": replay.format,
        "policy": replay.policy,
        "starts": replay.starts,
        "decisions": dict(replay.decisions),
        "reasons": dict(replay.reasons),
        "objects": [_tally_to_json(tally, unknown=tally.name in replay.unknown) for tally in replay.objects],
        "stops_at": None if stop is None else {"file": stop.file, "offset": stop.offset, "why": stop.why},
        "position": dict(replay.position),
        "digest": replay.digest,
        "read": list(replay.read),
        "findings": [{"file": file, **finding_to_value(found)} for file, found in replay.findings],
        "rules": dict(replay.rules),
        **({"details": dict(replay.details)} if replay.details else {}),
        **({"unknown": dict(replay.unknown)} if replay.unknown else {}),
    }


def _tally_to_json(tally: ObjectTally, *, unknown: bool) -> dict[str, Any]:
    state = {} if tally.keys is None and not unknown else {"keys": tally.keys, "digest": tally.digest}
    return {
        "name": tally.name,
        **tally.counts,
        "first_seq": tally.first_seq,
        "last_seq": tally.last_seq,
        **state,
    }


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
    yield from _render_start(replay)
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
    yield from _render_doubts(replay.details.get("not_comparable", {}))
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


def _render_start(replay: ReplayResult) -> Iterator[str]:
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
        keys = "" if tally.keys is None else f"  {format_count(tally.keys)} live  {(tally.digest or '')[:16]}"
        keys = f"  unknown live: {escape(unknown[tally.name])}" if tally.name in unknown else keys
        yield f"  {escape(tally.name)}: {counts}{seq}{keys}"
    if len(objects) > MAX_OBJECTS:
        yield f"  … {format_count(len(objects) - MAX_OBJECTS)} more objects (-O json has all)"


def _render_doubts(doubts: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each object whose digest may differ from that of the server's rows, with the reason."""
    for name, why in list(doubts.items())[:MAX_OBJECTS]:
        yield f"doubt     {escape(name)}: {escape(why)}"
    if len(doubts) > MAX_OBJECTS:
        yield f"  … {format_count(len(doubts) - MAX_OBJECTS)} more (-O json has all)"


def compare_states(left_replays: Sequence[ReplayResult], right_replays: Sequence[ReplayResult]) -> list[dict[str, Any]]:
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
            yield read_options.make_command(command, "--object", name, *paths)


_MAX_NAMED_FILES = 20
"""Number of compressed files that a suggested command names at most."""


def _find_replay(replays: Sequence[ReplayResult], name: str) -> ReplayResult | None:
    """Return the replay with an object of this name."""
    return next((one for one in replays if any(tally.name == name for tally in one.objects)), None)


def _get_sides(difference: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    return difference[name], difference[f"other_{name}"]
