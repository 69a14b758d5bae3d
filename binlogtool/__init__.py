"""Inspect, verify and repair database binary logs and write-ahead logs.

This is the public library; the command line uses nothing else. No call prints, exits the process or keeps global
state. Heavy modules are imported by the call that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from binlogtool.errors import BinlogtoolError

if TYPE_CHECKING:
    from binlogtool.calls import (
        annotate,
        annotated,
        backend,
        compared,
        convert,
        diagnose,
        follow,
        open,
        read_hints,
        replay,
        script_of,
        verify,
        verify_fleet,
        watched,
    )
    from binlogtool.findings import Finding, Severity
    from binlogtool.formats.detecting import Hints
    from binlogtool.limits import Limits
    from binlogtool.log.annotate import Annotated
    from binlogtool.log.compare import Compared
    from binlogtool.log.follow import Follower
    from binlogtool.log.records import Block, Record, Trouble
    from binlogtool.log.select import Selection
    from binlogtool.pipeline.manifest import Manifest
    from binlogtool.pipeline.master import Master
    from binlogtool.pipeline.notebook import Rows
    from binlogtool.pipeline.opened import Log
    from binlogtool.recovery.diagnosis_result import Diagnoses, Diagnosis
    from binlogtool.recovery.plan import Applied, Asked, FilePlan, FinishPlan, Plan, UndoPlan
    from binlogtool.recovery.replay_result import Decision, Replayed
    from binlogtool.recovery.report import FileReport, Report, SetReport
    from binlogtool.repairs import (
        apply_plan,
        finish_repair,
        plan_finish,
        plan_truncate,
        plan_undo,
        saved_plan,
        undo,
        write_repaired,
    )
    from binlogtool.report.series import Counted
    from binlogtool.results import report_as, stats
    from binlogtool.schema.annotation import Annotation, FieldRow

__version__ = "0.1.0"
__all__ = [
    "Annotated", "Annotation", "Applied", "Asked", "BinlogtoolError", "Block", "Compared", "Counted", "Decision",
    "Diagnoses", "Diagnosis", "FieldRow", "FilePlan", "FileReport", "Finding", "FinishPlan", "Follower", "Hints",
    "Limits", "Log", "Manifest", "Master", "Plan", "Record", "Replayed", "Report", "Rows", "Selection", "SetReport",
    "Severity", "Trouble", "UndoPlan",
    "__version__", "annotate", "annotated", "apply_plan", "backend", "compared", "convert", "diagnose",
    "finish_repair", "follow", "open", "plan_finish", "plan_truncate", "plan_undo", "read_hints", "replay", "report_as",
    "saved_plan", "script_of", "stats", "undo", "verify", "verify_fleet", "watched", "write_repaired",
]  # fmt: skip

_LATER = {
    "binlogtool.calls": (
        "annotate", "annotated", "backend", "compared", "convert", "diagnose", "follow", "open", "read_hints", "replay",
        "script_of", "verify", "verify_fleet", "watched",
    ),
    "binlogtool.findings": ("Finding", "Severity"),
    "binlogtool.formats.detecting": ("Hints",),
    "binlogtool.limits": ("Limits",),
    "binlogtool.log.annotate": ("Annotated",),
    "binlogtool.log.compare": ("Compared",),
    "binlogtool.log.follow": ("Follower",),
    "binlogtool.log.records": ("Block", "Record", "Trouble"),
    "binlogtool.log.select": ("Selection",),
    "binlogtool.pipeline.manifest": ("Manifest",),
    "binlogtool.pipeline.master": ("Master",),
    "binlogtool.pipeline.notebook": ("Rows",),
    "binlogtool.pipeline.opened": ("Log",),
    "binlogtool.recovery.diagnosis_result": ("Diagnoses", "Diagnosis"),
    "binlogtool.recovery.plan": ("Applied", "Asked", "FilePlan", "FinishPlan", "Plan", "UndoPlan"),
    "binlogtool.recovery.replay_result": ("Decision", "Replayed"),
    "binlogtool.recovery.report": ("FileReport", "Report", "SetReport"),
    "binlogtool.repairs": (
        "apply_plan", "finish_repair", "plan_finish", "plan_truncate", "plan_undo", "saved_plan", "undo",
        "write_repaired",
    ),
    "binlogtool.report.series": ("Counted",),
    "binlogtool.results": ("report_as", "stats"),
    "binlogtool.schema.annotation": ("Annotation", "FieldRow"),
}  # fmt: skip
"""What else belongs to the library: loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _LATER.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
