"""The manifest of a conversion: inputs with hashes, outputs with row totals, findings, and the checks made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from binlogtool._version import __version__
from binlogtool.findings import CHANGED_LATER, ENCRYPTED
from binlogtool.pipeline.record import describe_job_stats

SCHEMA = "binlogtool/manifest/1"


class ManifestInput(msgspec.Struct, frozen=True):
    """One input file. size: bytes; records: number of its records that were converted.

    trouble: why it could not be read; format and sha256 are "" then.
    """

    path: str
    format: str
    size: int
    sha256: str
    records: int
    trouble: str = ""


class ManifestOutput(msgspec.Struct, frozen=True):
    """One output file: path relative to the output, number of rows, size in bytes, hash of its bytes."""

    path: str
    rows: int
    size: int
    sha256: str = ""


class ManifestCheck(msgspec.Struct, frozen=True):
    """A statement that was checked on the finished output, with its figures."""

    name: str
    detail: str


class Manifest(msgspec.Struct, frozen=True):
    """The account of one conversion (JSON schema binlogtool/manifest/1).

    complete: False = damage stopped it and nothing was published: no outputs, no rows. rows: all rows of the output.
    damage: rows for bytes that could not be read. findings: JSON objects with their file. finding_counts: exact, even
      if
    `findings` was truncated. details: additional facts that depend on `to`.
    """

    to: str
    output: str
    complete: bool
    on_damage: str
    inputs: tuple[ManifestInput, ...]
    outputs: tuple[ManifestOutput, ...]
    rows: int
    damage: int
    findings: tuple[Mapping[str, Any], ...]
    finding_counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    checks: tuple[ManifestCheck, ...] = ()
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Exit status of `convert`.

        0 = the output is published and accounts for all input. 1 = damage stopped the conversion, some input could not
        be read, records have rows that no table holds (`on_damage` stop), or reversed rows were changed later. 6 = a
        key is missing.
        """
        if ENCRYPTED in self.finding_counts:
            return 6
        lost = self.details.get("append", {}).get("lost") or self.details.get("unreadable")
        missing = lost or (self.details.get("untold") and self.on_damage == "stop")
        return 0 if self.complete and not missing and CHANGED_LATER not in self.finding_counts else 1

    @property
    def spark_messages(self) -> tuple[str, ...]:
        """Messages about the Spark job: retried tasks, lost executors."""
        return tuple(describe_job_stats(self.details["spark"])) if "spark" in self.details else ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema": SCHEMA,
            "tool": {"name": "binlogtool", "version": __version__},
            "status": "complete" if self.complete else "stopped",
            "to": self.to,
            "output": self.output if self.complete else None,
            "on_damage": self.on_damage,
            "inputs": [_pick_attributes(i, "path", "format", "size", "sha256", "records") for i in self.inputs],
            "outputs": [_pick_attributes(o, "path", "rows", "size", "sha256") for o in self.outputs],
            "rows": self.rows,
            "damage_rows": self.damage,
            "findings": [dict(f) for f in self.findings],
            "finding_counts": dict(self.finding_counts),
            "checks": [_pick_attributes(c, "name", "detail") for c in self.checks],
            **({"details": dict(self.details)} if self.details else {}),
        }


def _pick_attributes(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}
