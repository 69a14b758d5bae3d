"""Results of `replay-dry-run` (JSON shape binlogtool/replay/1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.formats.replay_rules import VERBS, ReplayStop
from binlogtool.limits import Limits
from binlogtool.log.records import RecordBlock
from binlogtool.recovery.digest import MODULUS, OTHERS, ObjectState

SCHEMA = "binlogtool/replay/1"
_BYTES_PER_OBJECT = 1000


class ReplayDecision(NamedTuple):
    """The decision on one record.

    Attributes:
        file: Path of its file.
        verb: applied, skipped or rejected.
        reason: A key of `ReplayResult.rules`.

    The other members are as `dump` shows them.
    """

    file: str
    record: int
    offset: int
    size: int
    type: str
    seq: int | None
    time: int | None
    object: str | None
    txn: str | int | None
    verb: str
    reason: str


def make_decision(block: RecordBlock, index: int, verb: str, reason: str) -> ReplayDecision:
    """Return the decision on one record of a block."""
    envelope = block.envelope
    return ReplayDecision(
        block.file, block.record[index], block.offset[index], block.size[index], envelope.type[index],
        envelope.seq[index], envelope.time[index], envelope.object[index],
        envelope.txn[index], verb, reason,
    )  # fmt: skip


OnDecision = Callable[[ReplayDecision], None]


class ObjectTally(msgspec.Struct):
    """The records of one object, by verb.

    Attributes:
        first_seq, last_seq: Sequence numbers of the applied ones.
        keys: Live rows at the end; digest: of them.
    """

    name: str
    counts: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(VERBS, 0))
    first_seq: int | None = None
    last_seq: int | None = None
    keys: int | None = None
    digest: str | None = None


class ReplayResult(msgspec.Struct, frozen=True):
    """The replay of one log (JSON shape binlogtool/replay/1).

    Attributes:
        starts: True if the server starts; None if this log does not decide it.
        decisions: Verb -> records; reasons: reason -> records.
        stop: Where the server stops, if it does.
        position: The last applied position, which `--against` takes.
        digest: 64 hexadecimal digits; None where the format has no state.
        read: Paths, in the order in which the server reads them.
        findings: (path, finding), those of `verify` first.
        rules: Reason -> the rule in words.
        details: What policy `force` does in this format, and what else the format reports.
        unknown: Objects whose rows are not all in the log -> why; their keys and digest, and the digest of the whole
            state,
            are None.
    """

    path: str
    format: str
    policy: str
    starts: bool | None
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]
    objects: tuple[ObjectTally, ...]
    stop: ReplayStop | None
    position: Mapping[str, Any]
    digest: str | None
    read: tuple[str, ...]
    findings: tuple[tuple[str, Finding], ...]
    rules: Mapping[str, str]
    details: Mapping[str, Any]
    unknown: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_encrypted(self) -> bool:
        """True if a file is encrypted and its key was not given; then its effects are unknown."""
        return any(found.id == ENCRYPTED for _, found in self.findings)

    @property
    def incomplete_reason(self) -> str | None:
        """The limit that ended the replay early; everything else is about the part before it. None if it is
        complete.
        """
        why: str | None = self.details.get("incomplete")
        return why

    @property
    def is_clean(self) -> bool:
        """True if every record takes effect as it should (of an incomplete replay: every record that was reached)."""
        has_errors = any(found.severity is Severity.ERROR for _, found in self.findings)
        return not has_errors and self.stop is None and self.starts is not False and not self.decisions["rejected"]


def max_objects(limits: Limits) -> int:
    """Return how many objects are listed one by one."""
    return limits.max_memory // _BYTES_PER_OBJECT


def add_state(result: ReplayResult, state: Mapping[str, ObjectState], spilled: int, max_listed: int) -> ReplayResult:
    """Return the result with the state that the log leaves.

    Args:
        spilled: Entries that went to temporary files.
        max_listed: Objects that are listed one by one.
    """
    tallies, sums = {tally.name: tally for tally in result.objects}, dict[str, ObjectState]()
    for name, object_state in state.items():
        name = name if name in tallies or len(tallies) < max_listed else OTHERS
        tallies.setdefault(name, ObjectTally(name))
        sums.setdefault(name, ObjectState()).add(object_state.total, 1, object_state.keys)
    for name, object_state in sums.items():
        if name not in result.unknown:
            tallies[name].keys, tallies[name].digest = object_state.keys, object_state.digest
    for name in result.unknown:
        tallies.setdefault(name, ObjectTally(name))
    digest = sum(one.total for one in state.values()) % MODULUS
    details = {**result.details, **({"keys_spilled": spilled} if spilled else {})}
    objects = tuple(tallies[name] for name in sorted(tallies))
    whole = None if result.unknown else f"{digest:064x}"
    return replace(result, objects=objects, digest=whole, details=details)
