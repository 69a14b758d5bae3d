"""List the mutants that behave like the original, with the reason: by module, then by `Mutant.name`."""

from __future__ import annotations

_RESYNC = {
    "Resynchronizer.__init__: 1 -> 2": "room for a second frame in the table of a probe: only the first is looked at",
    "Resynchronizer.is_proven: start >= window.length -> start > window.length": "a scan of no bytes finds no frame",
    "Resynchronizer._read_more_of_frame: needed_end >= 0 -> needed_end > 0": "a frame never needs 0 bytes",
    "Resynchronizer._read_more_of_frame: 0 -> 1": "the same: never 0",
    "Resynchronizer._read_more_of_frame: 2 -> 3": "how much is read ahead where the need is not known: the frame "
    "is the same",
    **dict.fromkeys(
        (f"Resynchronizer._is_proven_frame: 0 -> -1{number}" for number in ("", " (2)", " (3)")),
        "the first row of a table of one row is also its last",
    ),
    "Resynchronizer._is_final_end_mark: 1 -> 2": "one byte more shows that the file goes on, two show it as well",
    "Resynchronizer.find_resync_point: 1 -> 2": "the default means that no end is known: any number up to the "
    "damage does",
    "Resynchronizer.find_resync_point: 1 -> 0": "the same: no damage is before 0",
    "Resynchronizer._is_resync_point: return False -> return None": "the result is only used as a condition",
    "Resynchronizer._search_resync_point: self.data_end < window.base -> self.data_end <= window.base": "either way "
    "all that is in memory is zeros, and a hole may follow",
    "Resynchronizer._iter_matches: low < end - base -> low <= end - base": "one search more, whose match is past the "
    "end",
    "Resynchronizer._iter_matches: end - base -> end + base": "the same; the match is compared with the end, and that "
    "is tested",
    "Resynchronizer._iter_matches: del match -> pass": "releases a buffer while the caller works: memory, not a result",
}

_SAME_LENGTH = "each list is built from the other: their lengths are equal"
_TARGETS = {
    **dict.fromkeys(
        (f"RepairTarget.is_only_shortened: 0 -> -1{number}" for number in ("", " (2)", " (3)")),
        "the first of one piece is also the last",
    ),
}
_TRANSACTION = {
    "_change_files_with_undo: True -> False": _SAME_LENGTH,
    "_describe_lost_attributes: True -> False": _SAME_LENGTH,
    "_make_undo_entries: True -> False": _SAME_LENGTH,
    "_change_files_or_roll_back: True -> False": _SAME_LENGTH,
    "_change_files_or_roll_back: True -> False (2)": _SAME_LENGTH,
    "_ReplacementFile.__enter__: system.fsync(self._file.fd) -> pass": "synced again before it gets its name; "
    "this call only finds a failing disk before the undo file is written",
    "_write_result: 1 -> 2": "a descriptor that is never read: a new file keeps no original bytes",
    "_write_result: 1 -> 0": "the same",
}
_DURABLE = {
    "draft_plan: 0 -> -1": "a file that is named alone is the only one of its log; its format is that of the plan",
    "draft_plan: 0 -> -1 (2)": "all files of a plan have one format",
    "_needs_joint_repair: return False -> return None": "the result is only used as a condition",
    "_plan_joint_repair: 0 -> -1": "files that are repaired together have one format",
    "_plan_joint_repair: 0 -> -1 (2)": "the same",
    "_plan_joint_repair: 0 -> -1 (3)": "the same",
    "_examine_owning_log_set: 0 -> -1": "the report of a single file has one file",
    "_examine_owning_log_set: return [] -> return None": "callers treat both as empty",
    "_examine_owning_log_set: return [] -> return None (2)": "the same",
}

_CONTENT = {
    "verify_planned_file: file.source.close() -> pass": "a file is also closed when it is freed, here at the return",
}
_UNDO = {
    "choose_undo_file: 0 -> -1": "used only if there is one path: it is the first and the last",
    "choose_undo_file: 0 -> -1 (2)": "the same",
}
_CONVERT = {
    "_add_broken_link_findings: 2 -> 1": "a single file has no neighbour that it could fail to follow: nothing is "
    "found",
}
_INCREMENTAL = {
    "IncrementalInput._find_last_written_index: 0 -> -1 (2)": "used in `number < last` only: no number is below 0 "
    "or -1",
}
_ROUTER = {
    "TableRouter._add_row_batch: 1 -> 0": "the event number if there is no last row: it is only used if there is one",
}
_JOB = {
    "RowTableJob._write_final_files: 2 -> 3": "the indentation of a JSON file",
}

EQUIVALENT: dict[str, dict[str, str]] = {
    "core.resync": _RESYNC,
    "export.convert_logs": _CONVERT,
    "export.incremental_positions": _INCREMENTAL,
    "export.records_to_arrow": {
        "_OversizedNumbers.replace_oversized: True -> False": _SAME_LENGTH,
        "_OversizedNumbers.replace_oversized: True -> False (2)": _SAME_LENGTH,
    },
    "export.write_typed_tables": _JOB,
    "export.table_router": _ROUTER,
    "export.typed_columns": {
        "TableLayout._build_change_columns: True -> False": _SAME_LENGTH,
        "TableLayout._build_change_columns: True -> False (2)": _SAME_LENGTH,
    },
    "repair.execute_plan": _TARGETS | _TRANSACTION,
    "repair.plan_truncate": _DURABLE,
    "repair.repaired_content": _CONTENT,
    "repair.undo_repair": _UNDO,
}
