"""What a conversion did, as a value: inputs with hashes, outputs with row totals, findings, and the checks made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

import binlogtool
from binlogtool import results
from binlogtool.findings import CHANGED_LATER, ENCRYPTED
from binlogtool.pipeline.record import told

SCHEMA = "binlogtool/manifest/1"


class Input(msgspec.Struct, frozen=True):
    """One file as it was read. size in bytes; records: how many of its records were converted (up to a stop).

    trouble: why it could not be read; format and sha256 are "" then.
    """

    path: str
    format: str
    size: int
    sha256: str
    records: int
    trouble: str = ""


class Output(msgspec.Struct, frozen=True):
    """One file that was written: path relative to the output, size in bytes, hash of its bytes."""

    path: str
    rows: int
    size: int
    sha256: str = ""


class Check(msgspec.Struct, frozen=True):
    """A statement that was tested on the finished output, with the figures."""

    name: str
    detail: str


class Manifest(msgspec.Struct, frozen=True):
    """The account of one conversion (JSON shape binlogtool/manifest/1).

    complete: False = damage stopped it, and nothing was published: no outputs, no rows. rows: all rows of the output;
    damage: those of them that stand for bytes that could not be read. findings: JSON objects with their file.
    finding_counts: exact, also where `findings` was cut. details: more, depending on `to`.
    """

    to: str
    output: str
    complete: bool
    on_damage: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    rows: int
    damage: int
    findings: tuple[Mapping[str, Any], ...]
    finding_counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 = the output is there and accounts for all input; 1 = damage stopped the conversion, or some input was lost
        before it could be read, or records have rows that no table holds (`on_damage` stop), or an undo meets rows that
        were changed later; 6 = no key for it."""
        if ENCRYPTED in self.finding_counts:
            return 6
        lost = self.details.get("append", {}).get("lost") or self.details.get("unreadable")
        missing = lost or (self.details.get("untold") and self.on_damage == "stop")
        return 0 if self.complete and not missing and CHANGED_LATER not in self.finding_counts else 1

    @property
    def befell(self) -> tuple[str, ...]:
        """What befell the work on a cluster, in lines: tasks that were done again, executors that were lost."""
        return tuple(told(self.details["spark"])) if "spark" in self.details else ()

    def as_value(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "binlogtool", "version": binlogtool.__version__},
            "status": "complete" if self.complete else "stopped",
            "to": self.to,
            "output": self.output if self.complete else None,
            "on_damage": self.on_damage,
            "inputs": [_members(i, "path", "format", "size", "sha256", "records") for i in self.inputs],
            "outputs": [_members(o, "path", "rows", "size", "sha256") for o in self.outputs],
            "rows": self.rows,
            "damage_rows": self.damage,
            "findings": [dict(f) for f in self.findings],
            "finding_counts": dict(self.finding_counts),
            "checks": [_members(c, "name", "detail") for c in self.checks],
            **({"details": dict(self.details)} if self.details else {}),
        }

    def to_json(self) -> bytes:
        """`convert -O json` (binlogtool/manifest/1)."""
        return results.manifest_as_json(self)


def _members(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}
