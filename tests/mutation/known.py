"""Mutants that no test can notice, since they mean the same, and why. By module, then by `Mutant.name`."""

from __future__ import annotations

_RESYNC = {
    "Resync.__init__: 1 -> 2": "room for a second frame in the table of a probe: only the first is looked at",
    "Resync.proven: start >= window.length -> start > window.length": "a scan of no bytes finds no frame",
    "Resync._grown: need >= 0 -> need > 0": "what a frame needs lies behind bytes that are there: it is never 0",
    "Resync._grown: 0 -> 1": "the same: never 0",
    "Resync._grown: 2 -> 3": "how much is read ahead where the need is not known: the frame stays the same",
    "Resync._accepts: 0 -> -1": "the first row of a table of one row is also its last",
    "Resync._is_closing_mark: 1 -> 2": "one byte more shows that the file goes on, two show it as well",
    "Resync.find: 1 -> 2": "the default says that no end is known: any number up to the damage does",
    "Resync.find: 1 -> 0": "the same: no damage is before 0",
    "Resync._lands: return False -> return None": "asked in conditions only",
    "Resync._search: self.data_end < window.base -> self.data_end <= window.base": "either way "
    "all that is in memory is zeros, and a hole may follow",
    "Resync._matches: low < end - base -> low <= end - base": "one search more, whose find is behind the end",
    "Resync._matches: end - base -> end + base": "the same; the find is compared with the end, and that is tested",
    "Resync._matches: del found -> pass": "lets go of a buffer while the caller works: memory, not a result",
}

_SAME_LENGTH = "lists that were made one from the other: they are of the same length"
_TARGETS = {
    "Target.is_cut: 0 -> -1": "the first of one piece is also the last",
}
_TRANSACTION = {
    "_apply: True -> False": _SAME_LENGTH,
    "_attributes_lost: True -> False": _SAME_LENGTH,
    "_entries: True -> False": _SAME_LENGTH,
    "_change: True -> False": _SAME_LENGTH,
    "_new_file.__enter__: system.fsync(self._file.fd) -> pass": "synced again before it gets its name; here so that a "
    "disk that fails is met before the undo file is written",
    "_redone: 1 -> 2": "a descriptor that is never read: nothing is kept of a file that is not there",
    "_redone: 1 -> 0": "the same",
}
_DURABLE = {
    "judged: 0 -> -1": "a file that is named by itself is the only one of its log, and its format that of the plan",
    "_settles: return False -> return None": "asked in conditions only",
    "_settled: 0 -> -1": "the files that are mended together are of one format",
    "_its_log: 0 -> -1": "the report of a file by itself has one file",
    "_its_log: return [] -> return None": "whoever asks takes either for nothing",
    "_refuse_compressed: 4 -> 5": "the magics are looked for at the start of what was read",
}

EQUIVALENT: dict[str, dict[str, str]] = {
    "log.resync": _RESYNC,
    "recovery.durable": _DURABLE,
    "recovery.targets": _TARGETS,
    "recovery.transaction": _TRANSACTION,
}
