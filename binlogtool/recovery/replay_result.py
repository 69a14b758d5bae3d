"""Results of `replay-dry-run` (JSON shape binlogtool/replay/1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from binlogtool import results
from binlogtool.findings import ENCRYPTED, Finding, Severity
from binlogtool.formats.replay_rules import VERBS, Stop
from binlogtool.limits import Limits
from binlogtool.log.records import Block
from binlogtool.recovery.digest import MODULUS, OTHERS, ObjectState

SCHEMA = "binlogtool/replay/1"
_OBJECT_BYTES = 1000


class Decision(NamedTuple):
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


def decision_of(block: Block, i: int, verb: str, reason: str) -> Decision:
    """Return the decision on one record of a block."""
    e = block.envelope
    return Decision(
        block.file, block.record[i], block.offset[i], block.size[i], e.type[i], e.seq[i], e.time[i], e.object[i],
        e.txn[i], verb, reason,
    )  # fmt: skip


OnDecision = Callable[[Decision], None]


class Tally(msgspec.Struct):
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


class Replayed(msgspec.Struct, frozen=True):
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
    objects: tuple[Tally, ...]
    stop: Stop | None
    position: Mapping[str, Any]
    digest: str | None
    read: tuple[str, ...]
    findings: tuple[tuple[str, Finding], ...]
    rules: Mapping[str, str]
    details: Mapping[str, Any]
    unknown: Mapping[str, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    @property
    def encrypted(self) -> bool:
        """True if a file is encrypted and its key was not given; then its effects are unknown."""
        return any(found.id == ENCRYPTED for _, found in self.findings)

    @property
    def incomplete(self) -> str | None:
        """The limit that ended the replay early; everything else is about the part before it. None if it is
        complete.
        """
        why: str | None = self.details.get("incomplete")
        return why

    @property
    def clean(self) -> bool:
        """True if every record takes effect as it should (of an incomplete replay: every record that was reached)."""
        bad = any(found.severity is Severity.ERROR for _, found in self.findings)
        return not bad and self.stop is None and self.starts is not False and not self.decisions["rejected"]

    def to_json(self) -> bytes:
        """Return `replay-dry-run -O json` (binlogtool/replay/1)."""
        return results.replay_as_json(self)


def most_objects(limits: Limits) -> int:
    """Return how many objects are listed one by one."""
    return limits.max_memory // _OBJECT_BYTES


def with_state(found: Replayed, state: Mapping[str, ObjectState], spilled: int, most: int) -> Replayed:
    """Return the result with the state that the log leaves.

    Args:
        spilled: Entries that went to temporary files.
        max_listed: Objects that are listed one by one.
    """
    tallies, sums = {tally.name: tally for tally in found.objects}, dict[str, ObjectState]()
    for name, one in state.items():
        name = name if name in tallies or len(tallies) < most else OTHERS
        tallies.setdefault(name, Tally(name))
        sums.setdefault(name, ObjectState()).add(one.total, 1, one.keys)
    for name, one in sums.items():
        if name not in found.unknown:
            tallies[name].keys, tallies[name].digest = one.keys, one.digest
    for name in found.unknown:
        tallies.setdefault(name, Tally(name))
    digest = sum(one.total for one in state.values()) % MODULUS
    details = {**found.details, **({"keys_spilled": spilled} if spilled else {})}
    objects = tuple(tallies[name] for name in sorted(tallies))
    whole = None if found.unknown else f"{digest:064x}"
    return replace(found, objects=objects, digest=whole, details=details)
