"""Inspect, verify and repair database binary logs and write-ahead logs.

This is the public library; the command line uses nothing else. No call prints, exits the process or keeps global
state. Heavy modules are imported by the call that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from binlogtool._version import __version__
from binlogtool.errors import BinlogtoolError

if TYPE_CHECKING:
    from binlogtool.calls import (
        annotate,
        annotate_log,
        compare,
        convert,
        diagnose,
        follow,
        open,
        prepare_sql_script,
        progress_listener,
        read_hints,
        replay,
        resolve_backend,
        verify,
        verify_fleet,
    )
    from binlogtool.findings import Finding, Severity
    from binlogtool.formats.detecting import Hints
    from binlogtool.limits import Limits
    from binlogtool.log.annotate import LogAnnotation
    from binlogtool.log.compare import LogComparison
    from binlogtool.log.follow import LogFollower
    from binlogtool.log.records import FileFinding, Record, RecordBlock
    from binlogtool.log.select import Selection
    from binlogtool.pipeline.manifest import Manifest
    from binlogtool.pipeline.master import SparkMaster
    from binlogtool.pipeline.notebook import LogRows
    from binlogtool.pipeline.opened import Log
    from binlogtool.recovery.diagnosis_result import Diagnosis, DiagnosisReport
    from binlogtool.recovery.plan import FilePlan, FinishPlan, RepairPlan, RepairPolicy, RepairResult, UndoPlan
    from binlogtool.recovery.replay_result import ReplayDecision, ReplayResult
    from binlogtool.recovery.report import FileReport, Report, SetReport
    from binlogtool.repairs import (
        apply_plan,
        finish_repair,
        load_plan,
        plan_finish,
        plan_truncate,
        plan_undo,
        undo,
        write_repaired_copy,
    )
    from binlogtool.report.series import LogStats
    from binlogtool.results import (
        collect_stats,
        manifest_as_json,
        plan_as_json,
        render_diagnosis,
        render_report,
        replay_as_json,
    )
    from binlogtool.schema.annotation import Annotation, FieldRow

__all__ = [
    "Annotation",
    "BinlogtoolError",
    "Diagnosis",
    "DiagnosisReport",
    "FieldRow",
    "FileFinding",
    "FilePlan",
    "FileReport",
    "Finding",
    "FinishPlan",
    "Hints",
    "Limits",
    "Log",
    "LogAnnotation",
    "LogComparison",
    "LogFollower",
    "LogRows",
    "LogStats",
    "Manifest",
    "Record",
    "RecordBlock",
    "RepairPlan",
    "RepairPolicy",
    "RepairResult",
    "ReplayDecision",
    "ReplayResult",
    "Report",
    "Selection",
    "SetReport",
    "Severity",
    "SparkMaster",
    "UndoPlan",
    "__version__",
    "annotate",
    "annotate_log",
    "apply_plan",
    "collect_stats",
    "compare",
    "convert",
    "diagnose",
    "finish_repair",
    "follow",
    "load_plan",
    "manifest_as_json",
    "open",
    "plan_as_json",
    "plan_finish",
    "plan_truncate",
    "plan_undo",
    "prepare_sql_script",
    "progress_listener",
    "read_hints",
    "render_diagnosis",
    "render_report",
    "replay",
    "replay_as_json",
    "resolve_backend",
    "undo",
    "verify",
    "verify_fleet",
    "write_repaired_copy",
]  # fmt: skip

_LAZY_EXPORTS = {
    "binlogtool.calls": (
        "annotate", "annotate_log", "resolve_backend", "compare", "convert", "diagnose", "follow", "open",
        "read_hints", "replay",
        "prepare_sql_script", "verify", "verify_fleet", "progress_listener",
    ),
    "binlogtool.findings": ("Finding", "Severity"),
    "binlogtool.formats.detecting": ("Hints",),
    "binlogtool.limits": ("Limits",),
    "binlogtool.log.annotate": ("LogAnnotation",),
    "binlogtool.log.compare": ("LogComparison",),
    "binlogtool.log.follow": ("LogFollower",),
    "binlogtool.log.records": ("RecordBlock", "Record", "FileFinding"),
    "binlogtool.log.select": ("Selection",),
    "binlogtool.pipeline.manifest": ("Manifest",),
    "binlogtool.pipeline.master": ("SparkMaster",),
    "binlogtool.pipeline.notebook": ("LogRows",),
    "binlogtool.pipeline.opened": ("Log",),
    "binlogtool.recovery.diagnosis_result": ("DiagnosisReport", "Diagnosis"),
    "binlogtool.recovery.plan": ("RepairResult", "RepairPolicy", "FilePlan", "FinishPlan", "RepairPlan", "UndoPlan"),
    "binlogtool.recovery.replay_result": ("ReplayDecision", "ReplayResult"),
    "binlogtool.recovery.report": ("FileReport", "Report", "SetReport"),
    "binlogtool.repairs": (
        "apply_plan", "finish_repair", "plan_finish", "plan_truncate", "plan_undo", "load_plan", "undo",
        "write_repaired_copy",
    ),
    "binlogtool.report.series": ("LogStats",),
    "binlogtool.results": (
        "collect_stats", "manifest_as_json", "plan_as_json", "render_diagnosis", "render_report", "replay_as_json",
    ),
    "binlogtool.schema.annotation": ("Annotation", "FieldRow"),
}  # fmt: skip
"""What else belongs to the library: loaded when it is asked for."""


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _LAZY_EXPORTS.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
