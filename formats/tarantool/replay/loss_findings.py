"""Losses of a start, the reason for each outcome, and remedies."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import (
    DANGLING_LINK,
    FILE_LINK,
    SKIPPED,
    ExaminedFile,
    ReplaySituation,
    ReplayStop,
)
from binlogtool.formats.tarantool.replay.simulated_xlog_reader import ServerReadResult
from binlogtool.formats.tarantool.replay.startup import CandidateFile
from binlogtool.formats.tarantool.schema import format_vclock
from binlogtool.formats.tarantool.validate.base_validator import format_range

# --- Reasons of a replay ---

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "snapshot": "A row of the newest snapshot: loaded first (`memtx_engine_recover_snapshot`).",
        "new": "The LSN is above the component of its replica in the vclock: applied (`recover_xlog`).",
        "control": "A row without data (NOP, CONFIRM, ROLLBACK, RAFT): only the vclock or the queue of synchronous "
        "transactions changes (docs/spec/tarantool.md#row-types).",
        "confirmed": "Waited in the queue of synchronous transactions until a CONFIRM ("
        "`txn_limbo_read_confirm`).",
        "unconfirmed": "Still in the queue of synchronous transactions when the log ends: its rows are "
            "present, and wait "
        "for a CONFIRM (`txn_limbo`; tested with 2.6.0).",
        "vinyl-metadata": "A record of the newest vinyl metadata log: read before the snapshot ("
        "`vy_recovery_new`).",
        "already-applied": "The LSN is not above the component of its replica in the vclock: skipped ("
        "`recover_xlog`).",
        "out-of-order": "The LSN is not above the component of its replica, because a later row came before it: "
        "skipped as if it had been applied, which it never was; the blocks were swapped "
        "(docs/spec/tarantool.md#reading-and-durable-end).",
        "rolled-back": "A synchronous transaction, or one that waited after it, that a ROLLBACK undid ("
        "`txn_limbo_read_rollback`).",
        "behind-silent-end": "After a block that the server takes for the end of the log, because its length runs "
        "past the end of the file (`xlog_cursor_next_tx`).",
        "older-file": "The file ends before the start position; only its header is read (`vclockset_match`).",
        "ignored-file": "Files with another suffix, such as .inprogress and .corrupted, are ignored (`xdir_scan`).",
        "vinyl-data": "Data of vinyl, read when a query needs it; it is not a log "
        "(docs/spec/tarantool.md#vinyl-files).",
        "no-snapshot": "Without a snapshot the server creates a new, empty instance and reads no log (tested "
            "with 2.6.0, "
        "`bootstrap`).",
        "bad-header": "force_recovery skips a file whose header is wrong (`xlog_dir_scan`).",
        "no-such-space": "The row's space does not exist: an error; with force_recovery the row is skipped "
        "(`space_cache_find_xc`).",
        "no-such-index": "The row's space has no primary index, or the data of a vinyl space could not be loaded: an "
        "error; with force_recovery the row is skipped (`space_execute_dml`).",
        "refused-request": "The request lacks a field that its type must have, or the server does not know its type: "
        "an error; with force_recovery the row is skipped (`xrow_decode_dml`; tested with 2.6.0 and 3.9).",
        "refused-row": "The row does not fit the format or the keys of its space, or cannot be changed that "
            "way: an error; "
        "with force_recovery it is skipped (`tuple_format.c`, `memtx_space.c`; tested with 2.6.0 and 3.9).",
        "refused-definition": "The row of a system space defines something impossible: an error; with "
            "force_recovery it is "
        "skipped (`alter.cc`; tested with 2.6.0 and 3.9).",
        "transaction-dropped": "A row of its transaction is refused, or the transaction has no end: with "
        "force_recovery all of it is skipped (2.8 and newer, `wal_stream_apply_mixed_dml_row`; tested with 3.9).",
        "vinyl-index": "The row defines an index of vinyl whose files or metadata are missing or do not fit: an error; "
        "with force_recovery the row is skipped (`vy_lsm_recover`).",
        "newer-than-snapshot": "A metadata log of vinyl that is newer than the snapshot: force_recovery of 3.x removes "
        "it (tested with 3.9).",
        "not-an-insert": "A row in a snapshot that is not an INSERT: an error; with force_recovery it is skipped ("
        "`memtx_engine_recover_snapshot_row`).",
    }
)  # fmt: skip


# --- Steps to start a stopped server ---

Step = Mapping[str, str | None]
"""Manual step. what: description; command: shell command to copy, or None."""

_NUMBERED_NAME = re.compile(r"(\d+)(\.(?:xlog|snap|vylog))")
_MAX_HEADER_SIZE = 300
"""Size in bytes within which every header ends; a shorter file without an empty line holds no rows."""


RESTORED = "the snapshot (.snap) that these files continue"


def list_remedies(stop: ReplayStop | None, situation: ReplaySituation) -> list[Step]:
    """List steps that help after a start that ends at `stop`; [] if rows would be lost, or no remedy is known."""
    if stop is None or not situation.is_directory or situation.policy == "force":
        return []
    kind = situation.other_entries.get(stop.file)
    if kind == FILE_LINK:
        return []
    if kind is not None:
        path = shlex.quote(posixpath.join(posixpath.dirname(situation.files[0].path), stop.file))
        text = f"move {stop.file} away: it is a {kind}, not a file"
        if kind == DANGLING_LINK:
            text = f"restore the file that the link {stop.file} names, or move the link away"
        return [_propose_move(path, text)]
    if "invalid instance UUID" in stop.why and not any(file.name.endswith(".snap") for file in situation.files):
        return [
            {
                "what": f"restore {RESTORED} from a backup or a replica: without it the server refuses them",
                "command": None,
            },
            *list_vylogs_to_restore(situation),
        ]
    return list(_find_steps(stop, {file.name: file for file in situation.files}))


def list_vylogs_to_restore(situation: ReplaySituation) -> list[Step]:
    """List a step for each damaged metadata log: its records refer to each other, so no part of it can be kept."""
    damaged = (file for file in situation.files if file.name.endswith(".vylog") and file.tail is not None)
    names = [file.name for file in damaged if file.tail is not None and file.tail.first_damage is not None]
    return [{"what": f"restore {name}, if a backup or a replica has it", "command": None} for name in names]


def _find_steps(stop: ReplayStop, files: Mapping[str, ExaminedFile]) -> Iterator[Step]:
    file = files.get(stop.file)
    if "failed to create file" in stop.why and stop.file.endswith(".inprogress"):
        yield _propose_move(
            None if file is None else shlex.quote(file.path),
            "move the unfinished file away: the server creates it again, and fails while it exists",
        )
    if file is None:
        return
    kind = stop.file.rpartition(".")[2]
    if kind == "xlog" and stop.why.startswith("Unexpected end of file") and _ends_in_header(file):
        size = "0 bytes" if not file.size else "only a part of its header"
        yield _propose_move(
            shlex.quote(file.path), f"move {posixpath.basename(file.name)} away: it has {size} and contains no row"
        )
        yield {"what": "or start once with force_recovery = true, which skips it", "command": None}
    if any(text in stop.why for text in ("invalid xlog order", "failed to open", "already exists")):
        yield from _propose_rename(file, files)
    if kind == "index":
        yield {
            "what": "start once with force_recovery = true: the server rebuilds the index file from its run",
            "command": None,
        }


def _ends_in_header(file: ExaminedFile) -> bool:
    """Return whether a file ends inside its header, so that it can hold no row."""
    header = None if file.layout is None else file.layout.context.text.end
    return header is None and file.records == 0 and file.size < _MAX_HEADER_SIZE


def _propose_rename(file: ExaminedFile, files: Mapping[str, ExaminedFile]) -> Iterator[Step]:
    """Propose the right name for a file whose name does not have 20 digits."""
    folder, base = posixpath.split(file.name)
    name_match = _NUMBERED_NAME.fullmatch(base)
    if name_match is None:
        return
    name = f"{int(name_match[1]):020d}{name_match[2]}"
    if base == name:
        return
    if posixpath.join(folder, name) in files:
        yield _propose_move(shlex.quote(file.path), f"move {base} away: {name} has the same number")
    else:
        target = shlex.quote(posixpath.join(posixpath.dirname(file.path), name))
        yield {"what": "restore the file's name: 20 digits", "command": f"mv -- {shlex.quote(file.path)} {target}"}


def _propose_move(path: str | None, description: str) -> dict[str, Any]:
    """Propose to move a file away. path: quoted for a shell."""
    return {"what": description, "command": None if path is None else f"mv -- {path} {path}.aside"}


# --- Losses of a start ---

MAX_REMEMBERED = 10_000
_MAX_SERVER_MESSAGES = 100

LsnRange = tuple[int, int, int]
"""(replica, first LSN, last LSN)."""


class _LostRows(msgspec.Struct):
    """Rows of one file that are lost, with the offset and number of the first one."""

    offset: int
    record: int
    count: int = 0
    lsns: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)

    def add(self, replica: int, lsn: int) -> None:
        """Add one row."""
        low, high = self.lsns.get(replica, (lsn, lsn))
        self.lsns[replica] = min(low, lsn), max(high, lsn)
        self.count += 1

    @property
    def lost_ranges(self) -> list[LsnRange]:
        """Lost LSN ranges by replica."""
        return [(replica, *span) for replica, span in sorted(self.lsns.items())]


class ReplayLosses(msgspec.Struct):
    """Losses of one start.

    Attributes:
        server_messages: messages that the server logs, as JSON.
        partly_applied: truncated blocks of which the server applies some rows, as JSON.
    """

    server_messages: list[dict[str, Any]] = msgspec.field(default_factory=list)
    partly_applied: list[dict[str, Any]] = msgspec.field(default_factory=list)
    _findings: list[tuple[str, Finding]] = msgspec.field(default_factory=list)
    _unread_rows: dict[str, _LostRows] = msgspec.field(default_factory=dict)
    _late_rows: dict[str, _LostRows] = msgspec.field(default_factory=dict)
    _gaps: list[LsnRange] = msgspec.field(default_factory=list)

    def add_server_message(self, name: str, text: str, offset: int | None = None) -> None:
        """Add an error that the server logs and tolerates."""
        if len(self.server_messages) < _MAX_SERVER_MESSAGES:
            self.server_messages.append({"file": name, "offset": offset, "text": text})

    def add_silent_loss(
        self, name: str, place: tuple[int | None, int], text: str, record: int | None = None, **facts: Any
    ) -> None:
        """Add a loss that the server does not report."""
        self._findings.append((name, make_finding("silent-loss", *place, text, record=record, **facts)))

    def add_losses_of_read_file(self, file: CandidateFile, result: ServerReadResult) -> None:
        """Add the losses of one file, from the result of reading it to its end."""
        for offset, text in result.messages:
            self.add_server_message(file.name, text, offset)
        for offset, rows in result.partly_applied:
            self.partly_applied.append({"file": file.name, "offset": offset, "rows": rows})
        for offset in result.dropped:
            text = (
                "the block's crc is right, but its content ends early: the server reads the remaining "
                "rows and reports no error"
            )
            self.add_silent_loss(file.name, (offset, 0), text, diagnosis="zstd_frame_cut")
        for gap in file.file.findings:
            if _is_lsn_gap(gap) and (result.limit is None or (gap.offset or 0) < result.limit):
                facts = gap.facts
                lost = [(facts["replica"], facts["first"], facts["last"])]
                place = gap.offset, gap.length
                self.add_silent_loss(
                    file.name,
                    place,
                    f"{_format_ranges(lost)}: the rows are missing, and the server reports no error",
                    gap.record,
                    lost=_ranges_to_json(lost),
                )

    def add_unread_rows(self, file_name: str, records: DecodedRecords, first_unread: int) -> None:
        """Add the rows from `first_unread` on, which come after the place that the server takes for the end of the
        log.
        """
        rows = self._unread_rows.setdefault(
            file_name, _LostRows(records.offset[first_unread], records.record[first_unread])
        )
        _add_rows(rows, records, first_unread, len(records))

    def add_gap_between_logs(
        self, before: CandidateFile, vclock: Mapping[int, int], log: CandidateFile, result: ServerReadResult
    ) -> None:
        """Add the rows missing between two logs: the server moves its vclock forward without an error."""
        lost = [(r, vclock.get(r, 0) + 1, lsn) for r, lsn in sorted(log.vclock.items()) if lsn > vclock.get(r, 0)]
        if not lost or result.messages or any(_is_lsn_gap(found) for found in before.file.findings):
            return
        unread = self._unread_rows.pop(before.name, None)
        end = result.silent_end if result.silent_end is not None else before.file.size
        text = f"{_format_ranges(lost)}: lost between here and VClock {format_vclock(dict(log.vclock))} of {log.name}"
        text += ", and the server reports only that the file was not closed"
        facts = {"lost": _ranges_to_json(lost), **({"records": unread.count} if unread else {})}
        record = unread.record if unread else None
        self.add_silent_loss(before.name, (end, before.file.size - end), text, record, **facts)

    def add_lsn_gap(self, replica: int, first: int, last: int) -> None:
        """Add LSNs that are skipped; their rows may still come later."""
        if len(self._gaps) < MAX_REMEMBERED:
            self._gaps.append((replica, first, last))

    def skip_out_of_order_row(
        self, file_name: str, records: DecodedRecords, row_index: int, replica: int, lsn: int
    ) -> tuple[str, str] | None:
        """Return the outcome on a row whose LSN does not rise, if its LSN was never applied; else None."""
        if not any(r == replica and first <= lsn <= last for r, first, last in self._gaps):
            return None
        rows = self._late_rows.setdefault(file_name, _LostRows(records.offset[row_index], records.record[row_index]))
        rows.add(replica, lsn)
        return SKIPPED, "out-of-order"

    def create_findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield (file name, finding) for all losses."""
        yield from self._findings
        for name, rows in self._unread_rows.items():
            text = (
                f"{rows.count:,} rows ({_format_ranges(rows.lost_ranges)}) are after a block that the "
                f"server takes for the end"
            )
            yield name, _create_rows_finding(rows, text)
        for name, rows in self._late_rows.items():
            text = f"{_format_ranges(rows.lost_ranges)}: after a later row, so the server skips {rows.count:,} rows"
            yield name, _create_rows_finding(rows, text)


def _create_rows_finding(rows: _LostRows, text: str) -> Finding:
    facts: dict[str, Any] = {"lost": _ranges_to_json(rows.lost_ranges), "records": rows.count}
    return make_finding("silent-loss", rows.offset, 0, text, record=rows.record, **facts)


def _add_rows(rows: _LostRows, records: DecodedRecords, start: int, stop: int) -> None:
    envelope = records.envelope
    for i in range(start, stop):
        rows.add(envelope.origin[i] or 0, envelope.seq[i] or 0)


def _is_lsn_gap(candidate: Finding) -> bool:
    """Return whether a finding is about LSNs that no row of a file has and that are not a failed write."""
    return candidate.id == "gap-in-sequence" and candidate.severity is Severity.ERROR and "replica" in candidate.facts


def _format_ranges(lost: list[LsnRange]) -> str:
    return ", ".join(f"LSN {format_range((first, last))} of replica {replica}" for replica, first, last in lost)


def _ranges_to_json(lost: list[LsnRange]) -> list[list[int]]:
    return [list(one) for one in lost]
