"""The engine of the dry run with rules that are made up: who decides when, in which order, and within which bounds.

The logs are Drizzle's, one record per transaction; sequence numbers are those that the test gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from binlogtool.core import open_file as open_file_module
from binlogtool.core.resolve_paths import LogGroup
from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import make_finding
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import (
    APPLIED,
    NOT_REACHED,
    PUT,
    REJECTED,
    SKIPPED,
    UNTIL,
    EffectReader,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplayRules,
    ReplaySituation,
    ReplayStop,
    StateChange,
)
from binlogtool.limits import Limits
from binlogtool.prediction.predict_replay import ReplayDecision, ReplayResult, replay_log
from binlogtool.prediction.replay_options import ReplayOptions
from tests.formats.drizzle.make import insert, log, message

REASONS = {"yes": "Applied.", "late": "Applied later.", "no": "Left out.", "old": "A file that is not read."}
RECORD = 62
"""Bytes of each record."""

Rule = Callable[[int, int], Iterable[RecordOutcome]]
"""Numbers of the first record of a run and behind its last one -> what is ruled now."""


STARTED = ReplayOutcome(True, None, {"at": 1})


@dataclass
class Scripted:
    """Rules that do what the test says. fed: (file, records) of each call."""

    rule: Rule
    last: tuple[RecordOutcome, ...] = ()
    outcome: ReplayOutcome = STARTED
    itinerary_of: Callable[[ReplaySituation], ReadPlan] | None = None
    fed: list[tuple[str, int]] = field(default_factory=list)
    situation: ReplaySituation | None = None

    def begin(self, situation: ReplaySituation) -> Scripted:
        self.situation = situation
        return self

    def plan_reads(self) -> ReadPlan:
        assert self.situation is not None
        if self.itinerary_of is not None:
            return self.itinerary_of(self.situation)
        return ReadPlan(tuple(file.name for file in self.situation.files))

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterable[RecordOutcome]:
        self.fed.append((name, len(records)))
        return self.rule(first, first + len(records))

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        return self.last, self.outcome


class LastSequence(EffectReader):
    """Each table has one row: the sequence number of the last record that was applied."""

    def read_changes(self, records: DecodedRecords, index: int) -> Iterator[StateChange]:
        yield StateChange(
            records.envelope.object[index] or "", PUT, b"%d" % (index % 7), b"%d" % (records.envelope.seq[index] or 0)
        )

    def get_reasons_of_unknown_objects(self) -> Mapping[str, str]:
        return {"s.z": "why"}


def everything(first: int, stop: int) -> list[RecordOutcome]:
    return [RecordOutcome(first, stop, APPLIED, "yes")]


def nothing(first: int, stop: int) -> list[RecordOutcome]:
    return []


def written(folder: Path, *files: Sequence[int], table: Callable[[int], bytes] = lambda _: b"t") -> list[str]:
    """Logs with these sequence numbers; returns their names."""
    for place, numbers in enumerate(files):
        data = log(*(message(number, insert(table=table(number))) for number in numbers))
        (folder / f"{place}.log").write_bytes(data)
    return [f"{place}.log" for place in range(len(files))]


def run(
    folder: Path, names: Iterable[str], script: Scripted, told: list[ReplayDecision] | None = None, **wish: Any
) -> ReplayResult:
    rules = ReplayRules(script.begin, REASONS, LastSequence, force="does something special")
    format_ = replace(open_file_module.find_format("drizzle"), replay=rules)
    group = LogGroup(str(folder), format_, tuple(names), True)
    return replay_log(group, ReplayOptions(**wish), None if told is None else told.append)


def numbers(told: Iterable[ReplayDecision]) -> list[int | None]:
    return [one.seq for one in told]


# -- who decides, and when ---------------------------------------------------------------------------------------------


def test_records_that_are_decided_at_once_are_told_in_the_order_of_the_log(tmp_path: Path) -> None:
    told: list[ReplayDecision] = []
    found = run(tmp_path, written(tmp_path, [1, 2, 3], [4, 5]), Scripted(everything), told)
    assert numbers(told) == [1, 2, 3, 4, 5]
    assert [(Path(one.file).name, one.record, one.offset) for one in told][2:4] == [("0.log", 2, 124), ("1.log", 0, 0)]
    assert found.decisions == {"applied": 5, "skipped": 0, "rejected": 0} and found.reasons == {"yes": 5}
    assert (found.objects[0].first_seq, found.objects[0].last_seq) == (1, 5)
    assert found.rules == {"yes": REASONS["yes"]} and found.position == {"at": 1} and found.starts is True


def test_late_rulings_take_effect_in_the_order_in_which_they_come(tmp_path: Path) -> None:
    """The second file commits what the first one left open, its last record first; the end of the log the rest."""

    def rule(first: int, stop: int) -> list[RecordOutcome]:
        if first == 0:
            return [RecordOutcome(1, 2, APPLIED, "yes")]
        return [
            RecordOutcome(3, 4, APPLIED, "late"),
            RecordOutcome(first, stop, REJECTED, "no"),
            RecordOutcome(0, 1, APPLIED, "late"),
        ]

    told: list[ReplayDecision] = []
    names = written(tmp_path, [1, 2, 3, 4], [5, 6], table=lambda n: b"z" if n == 4 else b"t")
    script = Scripted(rule, last=(RecordOutcome(2, 3, SKIPPED, "no"),))
    found = run(tmp_path, names, script, told)
    assert [(one.seq, one.verb, one.reason) for one in told] == [
        (2, APPLIED, "yes"), (4, APPLIED, "late"), (5, REJECTED, "no"), (6, REJECTED, "no"), (1, APPLIED, "late"),
        (3, SKIPPED, "no"),
    ]  # fmt: skip
    assert {one.name: one.counts for one in found.objects} == {
        "s.t": {"applied": 2, "skipped": 1, "rejected": 2},
        "s.z": {"applied": 1, "skipped": 0, "rejected": 0},
    }
    assert not found.is_clean and sum(found.decisions.values()) == 6


def test_one_ruling_may_reach_over_records_of_several_files(tmp_path: Path) -> None:
    told: list[ReplayDecision] = []

    def rule(first: int, stop: int) -> list[RecordOutcome]:
        return [RecordOutcome(1, stop, APPLIED, "yes")] if first == 4 else []

    found = run(tmp_path, written(tmp_path, [1, 2], [3, 4], [5, 6]), Scripted(rule), told)
    assert sorted(n for n in numbers(told) if n) == [1, 2, 3, 4, 5, 6]
    assert found.reasons == {"yes": 5, NOT_REACHED: 1}


def test_what_nobody_rules_on_is_not_reached_and_what_is_passed_by_has_its_reason(tmp_path: Path) -> None:
    told: list[ReplayDecision] = []
    names = written(tmp_path, [1, 2], [3, 4, 5], [6])

    def itinerary(situation: ReplaySituation) -> ReadPlan:
        return ReadPlan((names[2], names[0]), {names[1]: "old"})

    script = Scripted(lambda first, stop: [RecordOutcome(first, first + 1, APPLIED, "yes")], itinerary_of=itinerary)
    found = run(tmp_path, names, script, told)
    assert [one[0] for one in script.fed] == [names[2], names[0]] == [Path(one).name for one in found.read]
    assert found.reasons == {"yes": 2, "old": 3, NOT_REACHED: 1}
    assert [(one.seq, one.reason) for one in told] == [(6, "yes"), (1, "yes"), (2, NOT_REACHED)]


def test_a_refusal_reads_nothing_and_a_stop_is_told_with_the_path(tmp_path: Path) -> None:
    names = written(tmp_path, [1, 2])
    refused = Scripted(everything, itinerary_of=lambda _: ReadPlan((), refusal=ReplayStop(names[0], 7, "no")))
    found = run(tmp_path, names, refused)
    assert found.stop == ReplayStop(str(tmp_path / names[0]), 7, "no") and found.starts is False and refused.fed == []
    assert found.reasons == {NOT_REACHED: 2} and not found.is_clean
    late = make_finding("silent-loss", 3, 0, "lost")
    stopped = Scripted(
        nothing, outcome=ReplayOutcome(False, ReplayStop("elsewhere", None, "what"), {}, ((names[0], late),))
    )
    found = run(tmp_path, names, stopped)
    assert found.stop == ReplayStop("elsewhere", None, "what") and (str(tmp_path / names[0]), late) in found.findings


# -- until, strict -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("until", "fed", "left"),
    [
        ("0.log:record:2", [("0.log", 2)], 6),
        (f"0.log:{RECORD + 1}", [("0.log", 2)], 6),
        ("record:1", [("0.log", 3), ("1.log", 3), ("2.log", 1)], 1),
        (f"{RECORD}", [("0.log", 3), ("1.log", 3), ("2.log", 1)], 1),
        ("1.log:record:1", [("0.log", 3), ("1.log", 1)], 4),
        (f"2.log:{RECORD}", [("0.log", 3), ("1.log", 3), ("2.log", 1)], 1),
        ("seq:5", [("0.log", 3), ("1.log", 1)], 4),
        ("seq:1", [], 8),
        ("1.log:seq:9", [("0.log", 3), ("1.log", 1)], 4),
        ("seq:100", [("0.log", 3), ("1.log", 3), ("2.log", 2)], 0),
    ],
)
def test_until_ends_the_replay_at_the_first_record_behind_it(
    tmp_path: Path, until: str, fed: list[tuple[str, int]], left: int
) -> None:
    """Sequence numbers need not rise: behind 9 come lower ones, which belong to what is cut off."""
    script = Scripted(everything)
    found = run(tmp_path, written(tmp_path, [1, 2, 3], [4, 9, 5], [6, 7]), script, until=until)
    assert script.fed == fed
    assert found.decisions == {"applied": 8 - left, "skipped": left, "rejected": 0}
    assert found.reasons.get(UNTIL, 0) == left
    assert script.situation is not None and script.situation.ended_early() == (left > 0)


def test_a_base_is_read_whole_before_the_log_is_cut(tmp_path: Path) -> None:
    names = written(tmp_path, [50, 60, 70], [1, 2, 3])

    def itinerary(situation: ReplaySituation) -> ReadPlan:
        return ReadPlan(tuple(names), base=frozenset(names[:1]))

    for until, fed in (("seq:2", 1), ("record:2", 2), ("0", 0)):
        script = Scripted(everything, itinerary_of=itinerary)
        run(tmp_path, names, script, until=until)
        assert script.fed == [("0.log", 3), *([("1.log", fed)] if fed else [])]
    with pytest.raises(UsageError, match="whole or not at all"):
        run(tmp_path, names, Scripted(everything, itinerary_of=itinerary), until="0.log:record:1")


def test_undecided_records_at_the_end_of_until_are_not_called_lost(tmp_path: Path) -> None:
    found = run(tmp_path, written(tmp_path, [1, 2, 3]), Scripted(nothing), until="record:2")
    assert found.reasons == {UNTIL: 3}


def test_the_policy_strict_ends_in_front_of_the_first_error(tmp_path: Path) -> None:
    names = written(tmp_path, [1, 2, 3], [4, 5, 6], [7])
    path = tmp_path / names[1]
    data = bytearray(path.read_bytes())
    data[RECORD + 30] ^= 1
    path.write_bytes(data)
    script = Scripted(everything)
    found = run(tmp_path, names, script, policy="strict")
    assert script.fed == [("0.log", 3), ("1.log", 1)]
    assert found.stop is not None and (Path(found.stop.file).name, found.stop.offset) == ("1.log", RECORD)
    assert found.stop.why.startswith("checksum-mismatch: ")
    assert found.decisions["applied"] == 4 and found.reasons[NOT_REACHED] == 2
    lenient = Scripted(everything)
    run(tmp_path, names, lenient)
    assert lenient.fed[-1] == ("2.log", 1)


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown policy"):
        ReplayOptions(policy="lenient")


def test_what_force_means_and_what_is_doubted_stand_in_the_details(tmp_path: Path) -> None:
    names = written(tmp_path, [1])
    assert run(tmp_path, names, Scripted(everything), policy="force").details == {
        "force": "does something special", "not_comparable": {"s.z": "why"},
    }  # fmt: skip
    assert run(tmp_path, names, Scripted(everything)).details == {"not_comparable": {"s.z": "why"}}
    assert run(tmp_path, names, Scripted(everything), digest=False).details == {}


# -- state and bounds --------------------------------------------------------------------------------------------------


def test_the_state_is_that_of_the_order_of_application(tmp_path: Path) -> None:
    """The record that is decided last is the last writer, wherever it stands."""

    def commit_first_last(first: int, stop: int) -> list[RecordOutcome]:
        return (
            [RecordOutcome(1, stop, APPLIED, "yes")]
            if first == 0
            else [*everything(first, stop), RecordOutcome(0, 1, APPLIED, "late")]
        )

    one, other, plain = (tmp_path / name for name in ("one", "other", "plain"))
    for folder in (one, other, plain):
        folder.mkdir()
    late = run(one, written(one, [1], [2]), Scripted(commit_first_last))
    early = run(other, written(other, [2], [1]), Scripted(everything))
    usual = run(plain, written(plain, [1], [2]), Scripted(everything))
    assert late.digest == early.digest != usual.digest
    assert [one.keys for one in late.objects] == [1]
    assert run(plain, ["0.log"], Scripted(everything), digest=False).digest is None


def test_a_state_that_does_not_fit_is_spilled_and_stays_the_same(tmp_path: Path) -> None:
    names = written(tmp_path, range(1, 300), table=lambda n: b"t%d" % (n % 9))
    large = run(tmp_path, names, Scripted(everything))
    small = run(tmp_path, names, Scripted(everything), limits=Limits(max_memory=15_000))
    assert small.details["keys_spilled"] > 0 and "keys_spilled" not in large.details
    assert small.digest == large.digest
    assert {one.name: one.digest for one in small.objects} == {one.name: one.digest for one in large.objects}


def test_objects_beyond_the_memory_are_told_together(tmp_path: Path) -> None:
    names = written(tmp_path, range(1, 101), table=lambda n: b"t%02d" % (n % 20))
    found = run(tmp_path, names, Scripted(everything), limits=Limits(max_memory=15_000))
    assert len(found.objects) == 16 and found.objects[0].name == "(other objects)"
    assert found.objects[0].counts["applied"] == 25 and sum(one.counts["applied"] for one in found.objects) == 100
    whole = run(tmp_path, names, Scripted(everything))
    assert len(whole.objects) == 20 and whole.digest == found.digest


def test_undecided_records_are_bounded_by_the_memory(tmp_path: Path) -> None:
    names = written(tmp_path, *([number] * 20 for number in range(1, 11)))
    bound = Limits(max_memory=2_000)
    with pytest.raises(
        LimitError, match=r"\d+ records wait for the end of their transaction; raise --max-memory"
    ) as stop:
        run(tmp_path, names, Scripted(nothing), limits=bound)
    assert stop.value.exit_code == 6

    def previous(first: int, stop: int) -> list[RecordOutcome]:
        return [RecordOutcome(max(first - 20, 0), first, APPLIED, "late")]

    found = run(tmp_path, names, Scripted(previous), limits=bound)
    assert found.reasons == {"late": 180, NOT_REACHED: 20}


def test_records_that_wait_are_packed_and_decided_as_they_were(tmp_path: Path) -> None:
    names = written(tmp_path, *([number] * 20 for number in range(1, 11)))
    heard: dict[int, list[ReplayDecision]] = {}
    for memory in (60_000, 1 << 28):
        heard[memory] = []
        run(tmp_path, names, Scripted(nothing), heard[memory], limits=Limits(max_memory=memory))
    assert len(heard[60_000]) == 200 and heard[60_000] == heard[1 << 28]


def test_too_many_keys_for_the_memory_end_the_replay(tmp_path: Path) -> None:
    names = written(tmp_path, range(1, 4000), table=lambda n: b"%05d" % n)
    with pytest.raises(LimitError, match="too many keys") as stop:
        run(tmp_path, names, Scripted(everything), limits=Limits(max_memory=5_000))
    assert stop.value.exit_code == 6


# -- what the server has already ---------------------------------------------------------------------------------------


def test_a_known_position_reaches_the_rules(tmp_path: Path) -> None:
    names = written(tmp_path, [1])
    state = tmp_path / "state.json"
    for text, wanted in (('{"at": 4}', {"at": 4}), ('{"schema": "x", "position": {"at": 5}}', {"at": 5})):
        state.write_text(text)
        script = Scripted(everything)
        run(tmp_path, names, script, against=str(state))
        assert script.situation is not None and script.situation.start_position == wanted
    for text in ("[1]", "no JSON", '{"position": 3}'):
        state.write_text(text)
        with pytest.raises(UsageError, match="holds no position: expected a position or replay report as JSON"):
            run(tmp_path, names, Scripted(everything), against=str(state))
