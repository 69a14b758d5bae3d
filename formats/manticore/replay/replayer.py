"""Predict what a starting server does with each transaction, and what that changes.

Source: `docs/spec/manticore.md#server-behaviour`.

The rows in a commit can only be decoded with the table's schema. So the image of a document is not its values but what
identifies them: the checksum of the payload that added it, its position in the payload, and later updates.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from binlogtool.errors import LimitError, UsageError
from binlogtool.findings import Finding, Severity, make_finding
from binlogtool.format_api.format import DecodedRecords
from binlogtool.format_api.replay_rules import (
    ADD,
    APPLIED,
    DELETE,
    DROP,
    NOT_REACHED,
    PATCH,
    PUT,
    REJECTED,
    SKIPPED,
    EffectReader,
    ExaminedFile,
    ReadPlan,
    RecordOutcome,
    ReplayOutcome,
    ReplaySituation,
    ReplayStop,
    StateChange,
    combine_into_outcomes,
    encode_canonical,
)
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.explain_damage import FATAL_MISMATCH_VERSION
from binlogtool.formats.manticore.payload_kernels import build_zint, read_zint
from binlogtool.formats.manticore.replay.startup import (
    FORCES_TRANSACTIONS_VERSION,
    FORCES_VERSIONS,
    SETTINGS_LEAVE_TID,
    ManticoreStartPlan,
    ParseDoubt,
    find_corrected_head,
    find_damage_finding,
    find_damage_start,
    find_parse_doubt,
    find_settings_doubt,
    get_log_context,
    get_stated_version,
    is_loss,
    plan_start,
)
from binlogtool.formats.manticore.schema import OldOp, Op, PayloadOp
from binlogtool.formats.manticore.validate import MAX_TABLES

# --- Progress of the replay, per file and per table ---

MAX_GAPS = 1000
_MAX_REPORTED_TABLES = 20


class ReplayedTable(msgspec.Struct):
    """Table of the server.

    Attributes:
        tid: last applied TID; None = not served, -1 = without binlog.
        saved: TID before the start.
        gaps: TIDs `[first, last]` that were skipped.
        since: value of `tid` when the current file declared the table.
        last: highest TID in the current file.
        time: latest time in the current file.
    """

    tid: int | None
    saved: int
    gaps: list[tuple[int, int]] = msgspec.field(default_factory=list)
    since: int = 0
    last: int = 0
    time: int = 0

    def has_gap_at(self, tid: int) -> bool:
        """Return whether this TID, lower than the last applied one, was never applied."""
        return len(self.gaps) >= MAX_GAPS or any(low <= tid <= high for low, high in self.gaps)


class LostTransactions(msgspec.Struct):
    """Transactions of one file that the server loses without an error."""

    offset: int
    record: int
    count: int = 0
    tids: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)

    def add(self, name: str, tid: int) -> None:
        """Add one transaction."""
        self.count += 1
        if name in self.tids or len(self.tids) < _MAX_REPORTED_TABLES:
            low, high = self.tids.get(name, (tid, tid))
            self.tids[name] = min(low, tid), max(high, tid)


class ReplayedFile(msgspec.Struct):
    """The file that is replayed.

    Attributes:
        damage_start: offset of its first damaged range, or None.
        cache_defects: offsets of ADD_CACHEs with the checksum 0, after which the server reads no further.
        contradictions: offsets of commits whose numbers contradict each other.
        broken_settings: offset of a RECONFIGURE after whose settings the server finds no checksum, or None.
        end_reason: why nothing more is applied (`dropped`, `deleted`), or None.
        ruled_count: transactions that were ruled on.
    """

    file: ExaminedFile
    damage_start: int | None
    cache_defects: frozenset[int | None]
    contradictions: frozenset[int | None] = frozenset()
    broken_settings: int | None = None
    names: list[str] = msgspec.field(default_factory=list)
    tables: dict[str, ReplayedTable] = msgspec.field(default_factory=dict)
    op_counts: Counter[str] = msgspec.field(default_factory=Counter)
    unexpected: int = 0
    ruled_count: int = 0
    end_reason: str | None = None
    lost: LostTransactions | None = None

    @property
    def is_cut_short(self) -> bool:
        """True if data follows the place where the replay of the file ended."""
        return self.damage_start is not None or self.ruled_count < self.file.records

    def create_report(self) -> dict[str, Any]:
        """Return the messages that the server would log about the file."""
        commit_count = self.op_counts.total() - self.op_counts[Op.ADD_INDEX.name] - self.op_counts[Op.ADD_CACHE.name]
        tables = {name: [table.since, table.last] for name, table in self.tables.items()}
        is_empty = self.file.size in (0, schema.HEADER_SIZE)
        action = self.end_reason if self.end_reason and self.is_cut_short else "empty" if is_empty else "replayed"
        return {
            "file": self.file.name, "action": action, "commits": commit_count, "tables": len(self.names),
            "unexpected_tids": self.unexpected, "recovered": tables,
        }  # fmt: skip


# --- TIDs saved by tables (`--against`) ---

_INDEX_MAGICS = (b"SPRT\x09\0\0\0", b"SPRT\x0d\0\0\0")
"""Magic and version of an index saved by Sphinx 2.2.11 or Manticore 2.8.2 (observed): the TID is at offset 28."""
_QUERIES_MAGIC = b"QTSP\x07\0\0\0"
"""Magic and version of stored queries saved by Manticore 2.8.2 (observed): the TID is their last value."""


def read_saved_tid(name: str, data: bytes) -> Mapping[str, Any] | None:
    """Read the TID from a table's `.meta` file: JSON, or of Sphinx 2.2 or Manticore 2.8; None for other content."""
    table = name.removesuffix(".meta")
    if len(data) >= 36 and data.startswith((*_INDEX_MAGICS, _QUERIES_MAGIC)):
        position = len(data) - 8 if data.startswith(_QUERIES_MAGIC) else 28
        return {"tables": {table: struct.unpack_from("<q", data, position)[0]}}
    try:
        value = json.loads(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or "meta_version" not in value or not isinstance(value.get("tid"), int):
        return None
    return {"tables": {table: value["tid"]}}


def parse_saved_tids(start_position: Mapping[str, Any]) -> dict[str, int | None]:
    """Parse the TIDs saved by tables; None = not served. Raises UsageError: the position has another form."""
    tids = start_position.get("tables", {})
    is_valid = isinstance(tids, Mapping) and all(tid is None or type(tid) is int for tid in tids.values())
    if not is_valid or type(start_position.get("version", 0)) is not int:
        raise UsageError('--against must be {"tables": {NAME: TID}}, with null for a table that is not served')
    return dict(tids)


# --- Reasons of a replay ---

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "applied": "The table is served and its saved TID is lower: the transaction is applied.",
        "unexpected-tid": "The TID is not the next one of the table: applied all the same, with the warning "
        "'unexpected tid'. What the missing transactions changed stays unchanged.",
        "no-data": "ADD_INDEX declares a table, ADD_CACHE summarizes a file: neither changes a document.",
        "saved": "The TID is not greater than the table's saved TID: the table already has the change.",
        "repeated": "The TID was applied before, in this replay: skipped without an error.",
        "lost-order": "A greater TID of the table was applied before, so this transaction is skipped "
        "without an error (seen with version 16 servers): its change is lost.",
        "not-served": "The table is not in the server's configuration: only the checksum is verified.",
        "binlog-off": "The table has its binlog switched off (saved TID -1): only the checksum is verified.",
        "dropped": "An error in this file ends the replay of the file with a warning and lets the server "
        "start: a wrong checksum where nothing is applied, or any error with a replay flag. There is no resync "
        "(docs/spec/manticore.md#server-behaviour).",
        "deleted": "There is an error before the first table is declared: the server starts and deletes the file "
        "(docs/spec/manticore.md#server-behaviour).",
        "unlisted": "The file is not in binlog.meta: the server ignores it, and overwrites it when its "
        "counter reaches that number (invariant M7).",
        "no-meta": "There is no binlog.meta, or it lists nothing: the server takes that for an empty log, and "
        "overwrites the first file at its first commit.",
        "version": "The file is of another version than the server.",
        "unknown-table": "The table id was not declared in this file: fatal.",
        "payload": "The server cannot parse the payload: fatal if the transaction is to be applied.",
        "descending-tid": "Up to version 14: the TID is lower than one before it in the file: fatal.",
        "descending-time": "Up to version 14: the time is lower than before; fatal unless --replay-flags="
        "accept-desc-timestamp.",
    }
)


# --- Prediction of a starting server ---

_CHECKSUM_DIAGNOSES = ("bad CRC", "wrong length", "length past end of file", "transaction does not parse", "torn tail")
MAX_LISTED_FIELDS = 10
"""Most names of fields in stored queries that are listed."""

_QUERY_FIELDS = re.compile(r"@!?(?:\(([\w,\s]*)\)|([A-Za-z_]\w*))")


def _list_query_fields(body: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the fields that a stored query names: `@title`, `@!title` or `@(title,body)`."""
    payload = None if body is None else body.get("payload")
    text = str(payload.get("query", "")) if isinstance(payload, Mapping) else ""
    names = (name.strip() for match in _QUERY_FIELDS.finditer(text) for name in (match[1] or match[2]).split(","))
    return frozenset(name[:40] for name in names if name.isidentifier() and name != "relaxed")


_SKIP_NOT_REACHED = SKIPPED, NOT_REACHED


class ManticoreReplayer:
    """Replays a directory or single files by the server's rules (implements `format_api.replay_rules.Replayer`)."""

    def __init__(self, situation: ReplaySituation) -> None:
        self._saved_tids = parse_saved_tids(situation.start_position or {})
        self.situation = situation
        self.plan: ManticoreStartPlan = plan_start(situation)
        self.tables: dict[str, ReplayedTable] = {}
        self.force = situation.policy == "force"
        self.stop: ReplayStop | None = self.plan.refusal
        self.findings: list[tuple[str, Finding]] = []
        self.reports: list[dict[str, Any]] = []
        self.current_file: ReplayedFile | None = None
        self._open_error: ReplayStop | None = None
        self.replayed_files = 0
        self.unchecked = self.plan.unchecked
        self._query_fields: frozenset[str] = frozenset()
        self._waiting_files = list(self.plan.files)

    def plan_reads(self) -> ReadPlan:
        """Return the listed files, in the order of the list, up to the first one that cannot be opened."""
        skipped = {file.name: "no-meta" if self.plan.no_list else "unlisted" for file in self.plan.unlisted}
        if self.plan.refusal is not None:
            return ReadPlan((), refusal=self.plan.refusal)
        self._stop_at_missing_file()
        self._report_unlisted_records()
        return ReadPlan(tuple(file.name for file in self._waiting_files if file.records), skipped)

    def _stop_at_missing_file(self) -> None:
        if self.force:
            return
        for name, before in self.plan.missing.items():
            self._waiting_files = self._waiting_files[:before]
            self._open_error = ReplayStop(name, None, "listed in binlog.meta, but missing: log open error")
            return

    def _report_unlisted_records(self) -> None:
        """Report transactions in files that are not listed."""
        findings_by_name = {
            file.name: found for file in self.plan.unlisted for found in file.findings if "server" in found.facts
        }
        for file in self.plan.unlisted:
            if file.records:
                reason = "no list names it" if self.plan.no_list else "it is not listed in binlog.meta"
                severity = Severity.ERROR
                if not self.plan.no_list and file.name in findings_by_name:
                    severity = findings_by_name[file.name].severity
                text = f"{file.records:,} transactions are not replayed, because {reason}; the file will be overwritten"
                found = make_finding("silent-loss", 0, file.size, text, severity=severity, lost_records=file.records)
                self.findings.append((file.name, found))

    # -- reading ---------------------------------------------------------------------------------------------------

    def decide_records(self, name: str, first: int, records: DecodedRecords) -> Iterable[RecordOutcome]:
        """Rule on one run of transactions."""
        self._open_files_until(name)
        current_file = self.current_file
        if self.stop is not None or current_file is None:
            return [RecordOutcome(first, first + len(records), *_SKIP_NOT_REACHED)]
        reached = (
            len(records)
            if current_file.damage_start is None
            else bisect_left(records.offset, current_file.damage_start)
        )
        verbs: list[tuple[str, str]] = []
        for i in range(reached):
            if current_file.end_reason is not None or self.stop is not None:
                break
            verbs.append(self._replay_transaction(current_file, records, i))
        if len(verbs) < len(records) and current_file.end_reason is None and self.stop is None:
            self._predict_stop_at_damage(current_file)
        rest = _SKIP_NOT_REACHED if current_file.end_reason is None else (SKIPPED, current_file.end_reason)
        current_file.ruled_count += len(verbs)
        return [
            *combine_into_outcomes(verbs, first),
            *combine_into_outcomes([rest] * (len(records) - len(verbs)), first + len(verbs)),
        ]

    def _open_files_until(self, name: str) -> None:
        """Open the files up to this one; the files before it have no transactions."""
        while (
            self.stop is None
            and (self.current_file is None or self.current_file.file.name != name)
            and self._waiting_files
        ):
            self._close_file()
            if self.stop is None:
                self._open_file(self._waiting_files.pop(0))

    def _open_file(self, file: ExaminedFile) -> None:
        defects = frozenset(found.offset for found in file.findings if found.id == "checksum-absent")
        contradicting = (
            found for found in file.findings if found.facts.get("diagnosis") == "commit contradicts itself"
        )
        contradictions = frozenset(found.offset for found in contradicting)
        self.current_file = current_file = ReplayedFile(file, find_damage_start(file), defects, contradictions)
        context = get_log_context(file)
        if context is None:
            self._stop_or_end_file(current_file, None, "the log cannot be read: log open error", is_open_error=True)
            return
        stated_version, version = get_stated_version(file), self.plan.version
        if stated_version is not None and stated_version != version:
            text = f"the log is of version {stated_version}, the server of version {version}"
            self._stop_or_end_file(
                current_file, 4, f"{text}: recovery requires a server of the version of the log", is_version_error=True
            )
        elif context.header == "bad magic" or (stated_version is None and find_corrected_head(file) is not None):
            self._stop_or_end_file(current_file, 0, "the log does not start with SPBL")
        elif context.header == "torn":
            if not context.has_new_frames:
                self._stop_or_end_file(current_file, 0, "the header of the log is torn")
            current_file.end_reason = current_file.end_reason or "deleted"

    def _stop_or_end_file(
        self,
        current_file: ReplayedFile,
        offset: int | None,
        message: str,
        *,
        is_open_error: bool = False,
        is_version_error: bool = False,
    ) -> None:
        """Handle a fatal error: stop the server, or with the replay flags only end this file."""
        server_version = self.plan.version
        is_forced = (
            server_version in FORCES_VERSIONS
            if is_version_error
            else is_open_error or server_version >= FORCES_TRANSACTIONS_VERSION
        )
        if not (self.force and is_forced):
            self.stop = ReplayStop(current_file.file.name, offset, message)
        else:
            current_file.end_reason = self._choose_ending(current_file)

    def _choose_ending(self, current_file: ReplayedFile) -> str:
        """Return what happens to a file after a read error: one without a table is deleted, others are dropped."""
        is_deleted = (
            not current_file.names and not self.replayed_files and self.plan.version >= schema.NEW_FRAME_VERSION
        )
        return "deleted" if is_deleted else "dropped"

    def _predict_stop_at_damage(self, current_file: ReplayedFile) -> None:
        """Predict what the server does at the first bytes that are not a transaction: it stops, or gives up the rest
        of this file.
        """
        assert current_file.damage_start is not None
        damage = find_damage_finding(current_file.file, current_file.damage_start)
        action = None if damage is None else damage.facts.get("server")
        if action is None:  # the torn end of a log in use is not a finding, but the server reads it
            context = get_log_context(current_file.file)
            action = "refuse" if context is None else context.actions.get(current_file.damage_start, "refuse")
        diagnosis = None if damage is None else damage.facts.get("diagnosis")
        if action == "refuse" and diagnosis in _CHECKSUM_DIAGNOSES and self._try_skip_damaged_payload(current_file):
            action = "drop"
        message = "damage" if damage is None else damage.message
        doubt = None if action == "refuse" else self._find_doubt(current_file)
        if doubt is not None and doubt.stops:
            self.stop = ReplayStop(current_file.file.name, current_file.damage_start, doubt.why)
        elif doubt is not None:
            self.unchecked = (*self.unchecked, doubt.why)
        if action == "refuse":
            self._stop_or_end_file(current_file, current_file.damage_start, message)
        else:
            current_file.end_reason = self._choose_ending(current_file) if action == "delete" else "dropped"

    def _find_doubt(self, current_file: ReplayedFile) -> ParseDoubt | None:
        """Explain why an old-frame server may crash on garbage read before it verifies a checksum; else None."""
        context, beside = get_log_context(current_file.file), self.situation.read_sibling
        read = None if beside is None else beside(current_file.file.name)
        if (
            context is None
            or context.version >= FATAL_MISMATCH_VERSION
            or read is None
            or current_file.damage_start is None
        ):
            return None
        return find_parse_doubt(
            read, current_file.damage_start, current_file.file.size, context.version, context.id_size
        )

    def _try_skip_damaged_payload(self, current_file: ReplayedFile) -> bool:
        """Return whether the server skips the payload of the damaged transaction.

        Servers before version 15 parse every payload.
        """
        beside = self.situation.read_sibling
        read = None if beside is None else beside(current_file.file.name)
        if read is None or current_file.damage_start is None or self.plan.version < schema.NEW_FRAME_VERSION:
            return False
        head = read(current_file.damage_start, 32)
        if head[:4] != schema.TXN_PATTERN or len(head) < 7 or head[4] != Op.ADD_TXN:
            return False
        number, position = read_zint(head, 5, len(head))
        tid, end = read_zint(head, position, len(head)) if position > 0 else (0, -1)
        if end < 0 or not 0 <= number < len(current_file.names):
            return False
        table = self.tables[current_file.names[number]]
        is_skipped = table.tid is None or table.tid < 0 or tid <= table.tid
        if is_skipped:
            table.last = max(table.last, tid)  # the server counts the TID before it verifies the checksum
        return is_skipped

    @property
    def _has_new_frames(self) -> bool:
        """True if the server has frames of version 15 or later."""
        return self.plan.version >= schema.NEW_FRAME_VERSION

    # -- one transaction -------------------------------------------------------------------------------------------

    def _replay_transaction(self, current_file: ReplayedFile, records: DecodedRecords, i: int) -> tuple[str, str]:
        envelope = records.envelope
        kind, name, tid = envelope.type[i], envelope.object[i], envelope.seq[i]
        if kind == Op.ADD_INDEX.name:
            return self._declare_table(current_file, records, i, name or "")
        if kind == Op.ADD_CACHE.name:
            current_file.op_counts[kind] += 1
            if records.offset[i] in current_file.cache_defects:
                current_file.end_reason = "dropped"  # nothing should follow
            return SKIPPED, "no-data"
        since = (
            schema.OP_SINCE_VERSION.get(OldOp[kind], 0) if kind in OldOp.__members__ and not self._has_new_frames else 0
        )
        if since > self.plan.version:
            message = (
                f"unexpected entry: {kind} came with version {since}, the server is of version {self.plan.version}"
            )
            return self._reject_transaction(current_file, records.offset[i], "payload", message)
        table = None if name is None else current_file.tables.get(name)
        if table is None or name is None or tid is None:
            return self._reject_transaction(
                current_file, records.offset[i], "unknown-table", "the table id is not declared"
            )
        if kind == OldOp.RECONFIGURE.name and not self._has_new_frames:
            ending = self._check_settings(current_file, records.offset[i], records.size[i])
            if ending is not None:
                return ending
        if self.plan.version < schema.NEW_FRAME_VERSION and (
            fault := self._find_descending_fault(table, tid, envelope.time[i] or 0)
        ):
            return self._reject_transaction(
                current_file, records.offset[i], fault, f"table {name}: {fault.replace('-', ' ')}"
            )
        skip_reason = self._get_skip_reason(current_file, records, i, table)
        if skip_reason is None and _has_undecodable_payload(records.findings.get(i, ())):
            return self._reject_transaction(
                current_file, records.offset[i], "payload", f"table {name}: the payload cannot be parsed"
            )
        current_file.op_counts[kind] += 1
        table.last = max(table.last, tid)
        if skip_reason is not None:
            return SKIPPED, skip_reason
        contradicts = records.offset[i] in current_file.contradictions or _lacks_updated_values(kind, records.bodies[i])
        if contradicts and not self._has_new_frames and not self.unchecked:
            place = f"{records.offset[i]:#x} of {current_file.file.name}"
            text = f"not predicted: the counts in the {kind} record at {place} disagree; "
            self.unchecked = (f"{text}the server applies it without checking them",)
        if kind == OldOp.PQ_ADD.name and len(self._query_fields) < MAX_LISTED_FIELDS:
            self._query_fields |= _list_query_fields(records.bodies[i])
        if kind == OldOp.RECONFIGURE.name and self.plan.version in SETTINGS_LEAVE_TID:
            return APPLIED, "applied"
        return APPLIED, self._advance_table_tid(current_file, table, tid)

    def _declare_table(self, current_file: ReplayedFile, records: DecodedRecords, i: int, name: str) -> tuple[str, str]:
        """Declare a table by its ADD_INDEX; return (verb, reason), REJECTED if the ids are not in order."""
        number = (records.bodies[i] or {}).get("id", len(current_file.names))
        if number != len(current_file.names):
            return self._reject_transaction(
                current_file, records.offset[i], "unknown-table", "table ids are not in order"
            )
        table = self.tables.get(name)
        if table is None:
            if len(self.tables) >= MAX_TABLES:
                raise LimitError(f"{current_file.file.path}: more than {MAX_TABLES:,} tables")
            tid = self._saved_tids.get(name, 0)
            table = self.tables[name] = ReplayedTable(tid, tid or 0)
        table.since, table.last, table.time = table.tid or 0, 0, 0
        current_file.names.append(name)
        current_file.tables[name] = table
        current_file.op_counts[Op.ADD_INDEX.name] += 1
        return SKIPPED, "no-data"

    def _check_settings(self, current_file: ReplayedFile, offset: int, size: int) -> tuple[str, str] | None:
        """Check that the server finds the end of a RECONFIGURE where its checksum is; None if it does."""
        beside = self.situation.read_sibling
        read = None if beside is None else beside(current_file.file.name)
        if read is None:
            return None
        doubt = find_settings_doubt(read, offset, offset + size, current_file.file.size, self.plan.version)
        if isinstance(doubt, str):
            current_file.end_reason, current_file.broken_settings = "dropped", offset
            return SKIPPED, "dropped"
        if doubt is not None and doubt.stops:
            return self._reject_transaction(current_file, offset, "payload", doubt.why)
        if doubt is not None:
            self.unchecked = (*self.unchecked, doubt.why)
        return None

    def _find_descending_fault(self, table: ReplayedTable, tid: int, time: int) -> str | None:
        """Return the fault in the order of TIDs and times that servers up to 14 check in all transactions."""
        if tid < table.last:
            return "descending-tid"
        if time < table.time and not self.force:
            return "descending-time"
        table.time = time
        return None

    def _get_skip_reason(
        self, current_file: ReplayedFile, records: DecodedRecords, i: int, table: ReplayedTable
    ) -> str | None:
        """Return why the transaction is not applied; None if it is."""
        tid, name = records.envelope.seq[i] or 0, records.envelope.object[i] or ""
        if table.tid is None:
            return "not-served"
        if table.tid < 0:
            return "binlog-off"
        if tid > table.tid:
            return None
        if tid <= table.saved:
            return "saved"
        if not table.has_gap_at(tid):
            return "repeated"
        if current_file.lost is None:
            current_file.lost = LostTransactions(records.offset[i], records.record[i])
        current_file.lost.add(name, tid)
        return "lost-order"

    def _advance_table_tid(self, current_file: ReplayedFile, table: ReplayedTable, tid: int) -> str:
        """Advance the TID of a table, and store the gap before it; return the reason: `applied` or `unexpected-tid`."""
        before = table.tid or 0
        table.tid = tid
        if tid == before + 1:
            return "applied"
        if len(table.gaps) < MAX_GAPS:
            table.gaps.append((before + 1, tid - 1))
        current_file.unexpected += 1
        return "unexpected-tid"

    def _reject_transaction(
        self, current_file: ReplayedFile, offset: int, reason: str, message: str
    ) -> tuple[str, str]:
        self._stop_or_end_file(current_file, offset, message)
        return REJECTED, reason

    # -- the end ---------------------------------------------------------------------------------------------------

    def _close_file(self) -> None:
        """Close the current file: handle damage after its last transaction, and report its losses."""
        closed_file, self.current_file = self.current_file, None
        if closed_file is None:
            return
        if (
            closed_file.damage_start is not None
            and closed_file.end_reason is None
            and self.stop is None
            and _has_read_all_before_damage(closed_file)
        ):
            self._predict_stop_at_damage(closed_file)
        if self.stop is None or closed_file.ruled_count:
            self.reports.append(closed_file.create_report())
        if self.stop is None:
            self._report_losses(closed_file)
            self.replayed_files += bool(closed_file.names)

    def _report_losses(self, closed_file: ReplayedFile) -> None:
        """Report the losses of the file."""
        file, lost = closed_file.file, closed_file.lost
        if lost is not None:
            text = f"{lost.count:,} transactions have TIDs lower than one before them: the server skips them "
            text += "without an error"
            self._add_loss(file, lost.offset, file.size - lost.offset, text, record=lost.record,
            lost_records=lost.count,
                       tables={name: list(tids) for name, tids in lost.tids.items()})  # fmt: skip
        unread_count = file.records - closed_file.ruled_count
        broken_settings = closed_file.broken_settings
        damage_start = closed_file.damage_start if closed_file.damage_start is not None else 0
        damage_start = damage_start if broken_settings is None else broken_settings
        is_unread = closed_file.damage_start is None and file.size > schema.HEADER_SIZE and not closed_file.ruled_count
        is_damaged = is_unread or (
            closed_file.damage_start is not None and is_loss(find_damage_finding(file, damage_start))
        )
        is_damaged = is_damaged or broken_settings is not None
        if closed_file.end_reason and (unread_count or is_damaged):
            text = (
                f"the server starts, and "
                f"{'deletes' if closed_file.end_reason == 'deleted' else 'does not replay the rest of'} "
            )
            text += f"this file: {unread_count:,} complete transactions are after the damage"
            self._add_loss(
                file,
                damage_start,
                file.size - damage_start,
                text,
                lost_records=unread_count,
                server=closed_file.end_reason,
            )

    def _add_loss(self, file: ExaminedFile, offset: int, length: int, text: str, **facts: Any) -> None:
        record = facts.pop("record", None)
        self.findings.append((file.name, make_finding("silent-loss", offset, length, text, record=record, **facts)))

    def finish(self) -> tuple[Iterable[RecordOutcome], ReplayOutcome]:
        """Close the last file, and open later files without transactions, up to one that cannot be opened."""
        self._close_file()
        while self.stop is None and self._waiting_files and not self._waiting_files[0].records:
            self._open_file(self._waiting_files.pop(0))
            self._close_file()
        if self.stop is None and not self._waiting_files:
            self.stop = self._open_error or self.plan.uncreatable
        tids = {**self._saved_tids, **{name: table.tid for name, table in self.tables.items()}}
        position = {"tables": dict(sorted(tids.items()))}
        details: dict[str, Any] = {"files": self.reports, "server_version": self.plan.version}
        starts: bool | None = self.stop is None
        if self.unchecked and self.stop is None:
            starts, details["startup"] = None, {"starts": None, "not_checked": list(self.unchecked)}
        elif self._query_fields and self.stop is None:
            names = ", ".join(sorted(self._query_fields)[:MAX_LISTED_FIELDS])
            text = (
                f"not checked: whether the tables have all fields that stored queries use ({names}); the server stops "
            )
            details["startup"] = {"starts": True, "not_checked": [f"{text}at a query that uses a missing field"]}
        return (), ReplayOutcome(starts, self.stop, position, tuple(self.findings), details)


def _has_read_all_before_damage(current_file: ReplayedFile) -> bool:
    """Return whether all transactions before the damage were read (and not only those before `--until`)."""
    damage = (
        None if current_file.damage_start is None else find_damage_finding(current_file.file, current_file.damage_start)
    )
    return damage is None or damage.record is None or current_file.ruled_count >= damage.record


def _lacks_updated_values(kind: str, body: Mapping[str, Any] | None) -> bool:
    """Return whether the values of an UPDATE_ATTRS could not be read, because they are outside of the record."""
    payload = None if kind != OldOp.UPDATE_ATTRS.name or body is None else body.get("payload")
    return isinstance(payload, Mapping) and "documents" not in payload


def _has_undecodable_payload(findings: tuple[Finding, ...]) -> bool:
    return any(one.id == "payload-undecodable" for one in findings)


# --- Effects of applied transactions ---

_POLYNOMIAL = 0xEDB88320
_POLYNOMIAL_ONE = 1 << 31
_OP_NUMBERS = {op.name: op.value for op in OldOp} | {op.name: op.value for op in Op}
_COMMIT_NAME, _UPDATE_NAME = PayloadOp.COMMIT.name, PayloadOp.UPDATE_ATTRS.name


class ManticoreEffectReader(EffectReader):
    """Row changes of all versions (implements `format_api.replay_rules.EffectReader`)."""

    def __init__(self) -> None:
        self._replayer: ManticoreReplayer | None = None
        self._seen: set[str] = set()

    def attach_replayer(self, replayer: Any) -> None:
        """Use the replayer to find out what tables had saved before the start."""
        self._replayer = replayer if isinstance(replayer, ManticoreReplayer) else None

    def read_changes(self, records: DecodedRecords, index: int) -> Iterable[StateChange]:
        """Return the changes of one transaction. A table without a saved TID is empty before its first transaction."""
        table = records.envelope.object[index] or ""
        changes = self._decode_changes(table, records, index)
        if table in self._seen or self._replayer is None:
            return changes
        self._seen.add(table)
        table_state = self._replayer.tables.get(table)
        return changes if table_state is None or table_state.saved else (StateChange(table, DROP, b"", b""), *changes)

    def _decode_changes(self, table: str, records: DecodedRecords, i: int) -> Iterable[StateChange]:
        body = records.bodies[i]
        if body is not None and "payload" not in body:
            return ()
        content = _compute_payload_identity(records, i)
        if body is None:
            return (StateChange(table, ADD, b"", encode_canonical(content)),)
        payload = body["payload"]
        kind = body.get("payload_op") or records.envelope.type[i]
        if kind == _COMMIT_NAME:
            return _decode_commit(table, payload, content)
        if kind == _UPDATE_NAME:
            return _decode_update(table, payload, content)
        if isinstance(payload, bytes):  # RECONFIGURE: settings of the table
            return (StateChange(table, PUT, b"settings", payload),)
        return _decode_queries(table, payload if "n_new" in payload or "n_del_ids" in payload else {"new": [payload]})


def apply_patch(document_image: bytes, patch: bytes) -> bytes | None:
    """Return the image of a document after an update; None if it does not exist or cannot be determined."""
    if not document_image or not patch:
        return None
    try:
        *origin, values = msgspec.msgpack.decode(document_image)
        new_values = msgspec.msgpack.decode(patch)
    except (msgspec.DecodeError, ValueError):
        return None
    if not isinstance(values, dict) or not isinstance(new_values, dict):
        return None
    for name in new_values:  # a whole JSON document replaces earlier updates of its parts
        for part in [one for one in values if one.startswith(f"{name}.")]:
            del values[part]
    return encode_canonical([*origin, values | new_values])


def _decode_commit(table: str, payload: Mapping[str, Any], payload_identity: list[int]) -> Iterator[StateChange]:
    """Yield the changes of a commit: deletions first, then additions; an id is normally in both lists."""
    segment = payload.get("segment") or {}
    docids = segment.get("docids")
    if payload["rows"] and (docids is None or len(docids) != payload["rows"]):
        yield from (StateChange(table, DELETE, encode_canonical(docid), b"") for docid in payload["killed"])
        yield StateChange(table, ADD, b"", encode_canonical(payload_identity))
        return
    added = set(docids or ())
    yield from (
        StateChange(table, DELETE, encode_canonical(docid), b"") for docid in payload["killed"] if docid not in added
    )
    for row, docid in enumerate(docids or ()):
        yield StateChange(table, PUT, encode_canonical(docid), encode_canonical([*payload_identity, row, {}]))


def _decode_update(table: str, payload: Mapping[str, Any], payload_identity: list[int]) -> Iterator[StateChange]:
    if "documents" not in payload:
        yield StateChange(table, ADD, b"", encode_canonical(payload_identity))
        return
    for document in payload["documents"]:
        yield StateChange(table, PATCH, encode_canonical(document["docid"]), encode_canonical(document["values"]))


def _decode_queries(table: str, payload: Mapping[str, Any]) -> Iterator[StateChange]:
    """Yield the changes of stored queries. Deletions by tag stay unresolved: the log has only the tag's hash."""
    for number in payload.get("del_ids", ()):
        yield StateChange(table, DELETE, encode_canonical(number), b"")
    tags = payload.get("del_tags") or payload.get("tags")
    if tags:
        yield StateChange(table, ADD, b"", encode_canonical(["tags", tags]))
    for query in payload.get("new", ()):
        yield StateChange(table, PUT, encode_canonical(query["id"]), encode_canonical(query))


# -- the payload's own checksum ----------------------------------------------------------------------------------------


def _compute_payload_identity(records: DecodedRecords, i: int) -> list[int]:
    """Return [TID, bytes, CRC-32] of the payload: a checksum without the parts that differ from file to file."""
    envelope, body = records.envelope, records.bodies[i] or {}
    checksums = records.checksum
    stored = 0 if checksums is None or checksums[i] is None else checksums[i].stored
    tid, table = envelope.seq[i] or 0, body.get("id")
    if table is None:
        return [tid, records.size[i], stored]
    head = bytes((_OP_NUMBERS[envelope.type[i]],)) + build_zint(table) + build_zint(tid)
    head += body["uSize"].to_bytes(4, "little") if "uSize" in body else build_zint(body["time"])
    size = records.size[i] - 8 - len(head)
    return [tid, size, stored ^ _multiply_polynomials(zlib.crc32(head), _compute_zeros_factor(size))]


@lru_cache(4096)
def _compute_zeros_factor(size: int) -> int:
    """Return the factor by which `size` zero bytes change a CRC-32: x to the 8 * size, modulo the polynomial."""
    result, power = _POLYNOMIAL_ONE, 1 << 23  # 1, and x to the power of 8, the lowest power in the highest bit
    while size > 0:
        if size & 1:
            result = _multiply_polynomials(power, result)
        power = _multiply_polynomials(power, power)
        size >>= 1
    return result


def _multiply_polynomials(left: int, right: int) -> int:
    """Multiply two polynomials modulo the polynomial of CRC-32."""
    product = 0
    while right:
        if right & _POLYNOMIAL_ONE:
            product ^= left
        right = right << 1 & 0xFFFFFFFF
        left = left >> 1 ^ _POLYNOMIAL if left & 1 else left >> 1
    return product
