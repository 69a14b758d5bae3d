"""Mutants that no test can notice, since they mean the same, and why. By module, then by `Mutant.name`."""

from __future__ import annotations

_RESYNC = {
    "Resynchronizer.__init__: 1 -> 2": "room for a second frame in the table of a probe: only the first is looked at",
    "Resynchronizer.is_proven: start >= window.length -> start > window.length": "a scan of no bytes finds no frame",
    "Resynchronizer._grow_window: need >= 0 -> need > 0": "what a frame needs lies behind bytes that are there: it is "
    "never 0",
    "Resynchronizer._grow_window: 0 -> 1": "the same: never 0",
    "Resynchronizer._grow_window: 2 -> 3": "how much is read ahead where the need is not known: the frame stays the "
    "same",
    "Resynchronizer._is_proven_frame: 0 -> -1": "the first row of a table of one row is also its last",
    "Resynchronizer._is_final_end_mark: 1 -> 2": "one byte more shows that the file goes on, two show it as well",
    "Resynchronizer.find: 1 -> 2": "the default says that no end is known: any number up to the damage does",
    "Resynchronizer.find: 1 -> 0": "the same: no damage is before 0",
    "Resynchronizer._is_resync_point: return False -> return None": "asked in conditions only",
    "Resynchronizer._search: self.data_end < window.base -> self.data_end <= window.base": "either way "
    "all that is in memory is zeros, and a hole may follow",
    "Resynchronizer._iter_matches: low < end - base -> low <= end - base": "one search more, whose find is behind the "
    "end",
    "Resynchronizer._iter_matches: end - base -> end + base": "the same; the find is compared with the end, and that "
    "is tested",
    "Resynchronizer._iter_matches: del match -> pass": "lets go of a buffer while the caller works: memory, not a "
    "result",
}

_SAME_LENGTH = "lists that were made one from the other: they are of the same length"
_TARGETS = {
    "RepairTarget.is_cut: 0 -> -1": "the first of one piece is also the last",
}
_TRANSACTION = {
    "_execute: True -> False": _SAME_LENGTH,
    "_list_lost_attributes: True -> False": _SAME_LENGTH,
    "_make_undo_entries: True -> False": _SAME_LENGTH,
    "_change_files: True -> False": _SAME_LENGTH,
    "_ReplacementFile.__enter__: system.fsync(self._file.fd) -> pass": "synced again before it gets its name; here so "
    "that a disk that fails is met before the undo file is written",
    "_write_result: 1 -> 2": "a descriptor that is never read: nothing is kept of a file that is not there",
    "_write_result: 1 -> 0": "the same",
}
_DURABLE = {
    "draft_plan: 0 -> -1": "a file that is named by itself is the only one of its log, and its format that of the plan",
    "_needs_joint_repair: return False -> return None": "asked in conditions only",
    "_plan_joint_repair: 0 -> -1": "the files that are mended together are of one format",
    "_find_owning_log: 0 -> -1": "the report of a file by itself has one file",
    "_find_owning_log: return [] -> return None": "whoever asks takes either for nothing",
}

EQUIVALENT: dict[str, dict[str, str]] = {
    "core.resync": _RESYNC,
    "repair.plan_truncate": _DURABLE,
    "repair.atomic_file_changes": _TARGETS | _TRANSACTION,
}
