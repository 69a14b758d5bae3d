"""Inspect, verify and repair database binary logs and write-ahead logs.

This is the public library; the command line uses nothing else. No call prints, exits the process or keeps global state.
Heavy modules are imported by the call that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from binlogtool._version import __version__
from binlogtool.errors import BinlogtoolError

if TYPE_CHECKING:
    from binlogtool.annotation.annotate_file import LogAnnotation
    from binlogtool.annotation.compare_logs import LogComparison
    from binlogtool.api import (
        annotate,
        annotate_log,
        apply_plan,
        collect_stats,
        compare,
        convert,
        diagnose,
        finish_repair,
        follow,
        load_plan,
        manifest_as_json,
        open,
        plan_as_json,
        plan_finish,
        plan_truncate,
        plan_undo,
        prepare_sql_script,
        progress_listener,
        read_hints,
        render_diagnosis,
        render_report,
        replay,
        replay_as_json,
        resolve_backend,
        undo,
        verify,
        verify_fleet,
        write_repaired_copy,
    )
    from binlogtool.core.follow_growing_logs import LogFollower
    from binlogtool.core.record_and_selection_types import FileFinding, Record, RecordBlock, Selection
    from binlogtool.export.manifest import Manifest
    from binlogtool.export.public_log_class import Log
    from binlogtool.export.read_rows_as_arrow import LogRows
    from binlogtool.export.spark_settings import SparkMaster
    from binlogtool.findings import Finding, Severity
    from binlogtool.format_api.format import Hints
    from binlogtool.limits import Limits
    from binlogtool.prediction.predict_replay import ReplayDecision, ReplayResult
    from binlogtool.repair.diagnose_startup import Diagnosis, DiagnosisReport
    from binlogtool.repair.plan_types import FilePlan, FinishPlan, RepairPlan, RepairPolicy, RepairResult, UndoPlan
    from binlogtool.report.record_statistics import LogStats
    from binlogtool.schema.annotation_types import Annotation, FieldRow
    from binlogtool.verification.verify_report import FileReport, Report, SetReport


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
    "binlogtool.annotation.annotate_file": ("LogAnnotation",),
    "binlogtool.annotation.compare_logs": ("LogComparison",),
    "binlogtool.api": ("annotate", "annotate_log", "apply_plan", "collect_stats", "compare", "convert",
    "diagnose", "finish_repair", "follow", "load_plan", "manifest_as_json", "open", "plan_as_json",
    "plan_finish", "plan_truncate", "plan_undo", "prepare_sql_script", "progress_listener", "read_hints",
    "render_diagnosis", "render_report", "replay", "replay_as_json", "resolve_backend", "undo", "verify",
    "verify_fleet", "write_repaired_copy",),
    "binlogtool.core.follow_growing_logs": ("LogFollower",),
    "binlogtool.core.record_and_selection_types": ("FileFinding", "Record", "RecordBlock", "Selection",),
    "binlogtool.export.manifest": ("Manifest",),
    "binlogtool.export.read_rows_as_arrow": ("LogRows",),
    "binlogtool.export.public_log_class": ("Log",),
    "binlogtool.export.spark_settings": ("SparkMaster",),
    "binlogtool.findings": ("Finding", "Severity",),
    "binlogtool.format_api.format": ("Hints",),
    "binlogtool.limits": ("Limits",),
    "binlogtool.repair.diagnose_startup": ("Diagnosis", "DiagnosisReport",),
    "binlogtool.repair.plan_types": ("FilePlan", "FinishPlan", "RepairPlan", "RepairPolicy", "RepairResult",
    "UndoPlan",),
    "binlogtool.prediction.predict_replay": ("ReplayDecision", "ReplayResult",),
    "binlogtool.verification.verify_report": ("FileReport", "Report", "SetReport",),
    "binlogtool.report.record_statistics": ("LogStats",),
    "binlogtool.schema.annotation_types": ("Annotation", "FieldRow",),
}  # fmt: skip
"""Module -> public names that are imported from it on first use."""


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _LAZY_EXPORTS.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
