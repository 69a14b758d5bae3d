"""Findings: what is wrong with the data, as values with stable ids, default severities and the text of `explain`."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from binlogtool.errors import LimitError


class Severity(enum.IntEnum):
    """Severity of a finding, ordered; a finding at or above `--fail-on` makes the exit status 1."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """The name used in every output: note, warning, error."""
        return self.name.lower()


class Finding(msgspec.Struct, frozen=True):
    """One problem in the data, or one fact worth knowing.

    Args:
        offset: absolute in the file; `[offset, offset + length)` is the affected record or range. None for a finding
            about a whole set.
        record: index of the record, counting provable records from 0.
        facts: JSON values (numbers, strings).
    """

    id: str
    severity: Severity
    offset: int | None
    length: int
    message: str
    record: int | None = None
    facts: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))

    def copy_with_severity(self, severity: Severity) -> Finding:
        """Return the same finding with another severity."""
        return replace(self, severity=severity)


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of one finding id, as `binlogtool explain` prints it."""

    severity: Severity
    meaning: str
    causes: str
    action: str


ENCRYPTED = "encrypted"  # an encrypted log without a key: its content was not checked (exit status 6)
CHANGED_LATER = (
    "changed-later"  # rows to flash back were changed again by changes that are not selected (exit status 1)
)
STATEMENT_LEFT_OUT = (
    "statement-left-out"  # an option keeps the statement out of a script: nothing is wrong with the log
)
ROWS_NOT_LOGGED = "rows-not-logged"  # the log has a statement in place of the rows that it changed
COLUMNS_UNKNOWN = "columns-unknown"  # neither the log nor --schema names the columns of a table
NOT_REVERSIBLE = "not-reversible"  # a flashback cannot reverse an event
HOLE_IDS = ("missing-member", "gap-in-sequence")
"""Files of a log do not follow each other because files between them are missing."""
LIMIT_OPTIONS: Mapping[str, str] = {"nesting-too-deep": "--max depth=N", "inflate-limit": "--max inflate=SIZE"}
"""Id of a finding about content that a limit of this program keeps from being decoded -> the option that raises it."""
BEYOND_LIMITS = tuple(LIMIT_OPTIONS)
UNCHECKED_IDS = frozenset((ENCRYPTED, *BEYOND_LIMITS))
"""Findings about content that was not checked: they prove no damage (exit status 6)."""
ROWS_DIVERGE = "rows-diverge"  # the row events of a table do not add up to its rows

ORDER_IDS = ("meta-mismatch", "sequence-regression")
"""Findings of readers about files in the wrong order."""
SET_LINK_IDS = frozenset((*ORDER_IDS, "missing-member", "gap-in-sequence", "member-not-named"))
"""Findings of readers about files that do not follow each other."""


def raise_if_limit(path: str, finding: Finding) -> None:
    """Raise if a finding is about a limit of this program, because that proves nothing about the server or the log.

    Raises:
        LimitError: the finding is about such a limit.
    """
    if (option := LIMIT_OPTIONS.get(finding.id)) is not None:
        text = f"{finding.message}; this is a limit of this program, not the server's: raise {option}"
        raise LimitError(f"{path} at {finding.offset or 0:,}: {text}")


_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR


def _make_explanation(severity: Severity, meaning: str, causes: str, action: str) -> Explanation:
    return Explanation(severity, meaning, causes, action)


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType(
    {
        "torn-tail": _make_explanation(
            _N,
            "The last record is incomplete, and nothing after it can be proven to be a record.",
            "The server or the machine stopped while it was being written, or the file was copied while it grew.",
            "Usually nothing: the server drops the unfinished record when it starts. `truncate-to-durable` shows what "
            "truncation would remove. With `--expect-closed` this is an error.",
        ),
        "zero-tail": _make_explanation(
            _N,
            "After the last record there are only zero bytes up to the end of the file.",
            "The file was extended before it was written, or the file system kept the new size but lost the data in a "
            "power cut.",
            "Nothing, if the server reserves space in advance. Otherwise compare the last record with a replica: "
            "writes that were acknowledged shortly before the crash may be missing.",
        ),
        "preallocated-tail": _make_explanation(
            _N,
            "The rest of the file is the filler that this format writes into reserved space.",
            "Normal for a log that reserves its space in advance, and for the newest file of a running server.",
            "Nothing.",
        ),
        "garbage-tail": _make_explanation(
            _W,
            "The bytes after the last record are neither a record nor filler.",
            "A reused disk block, another program that wrote to the file, or a damaged record whose start cannot "
            "be recognised.",
            "Look at the bytes with `hexdump-annotate --at OFFSET`. If they hold nothing of value, "
            "`truncate-to-durable` plans the truncation.",
        ),
        "unclean-close": _make_explanation(
            _N,
            "The file has no clean-close mark, or its in-use flag is set.",
            "The server is still writing to the file, or it stopped without closing the file.",
            "Nothing while the server runs. After a crash: run `verify` on the whole directory before the start.",
        ),
        "log-outdated": _make_explanation(
            _E,
            "The newest record of the log is older than `--max-age` allows.",
            "The copy job of the backup stopped, or copies another directory; or the server writes nothing.",
            "Compare with the newest file on the server. If the server is idle, choose a longer `--max-age`.",
        ),
        "age-unknown": _make_explanation(
            _N,
            "`--max-age` was not checked for this log: no record has a time.",
            "The format has no times (eblob, most Sphinx and Manticore records), or the log has no records yet.",
            "Check the modification time of the copied files with another tool if the age of this log matters.",
        ),
        "checksum-mismatch": _make_explanation(
            _E,
            "The stored checksum differs from the one computed over the same bytes: they changed after they "
            "were written.",
            "A failing disk, memory or controller, a copy that was interrupted or went through a text mode, or a "
            "record that was only partly overwritten.",
            "Do not start the server on this file. Take the file from a replica or a backup if there is one; look at "
            "the record with `hexdump-annotate --at OFFSET`. If the facts name a single flipped bit, suspect memory.",
        ),
        ENCRYPTED: _make_explanation(
            _W,
            "The log is encrypted and no key was given: only the unencrypted parts were read, the rest was "
            "not checked.",
            "The server encrypts its logs (encrypt_binlog, binlog_encryption).",
            "Give the server's key file or keyring with `--keyfile FILE`. The exit status is 6: not checked.",
        ),
        "checksum-absent": _make_explanation(
            _N,
            "No checksum is stored here, so changed bytes cannot be detected.",
            "Checksums are switched off in the server, or this version of the format has none.",
            "Nothing urgent. Switch checksums on if the format has them; otherwise keep a checksum of the copied file "
            "(`sha256sum`) to compare with.",
        ),
        "length-out-of-bounds": _make_explanation(
            _E,
            "A declared length points past the end of the file or of its container, or exceeds the limit.",
            "A damaged length field, a truncated file, or a malicious file.",
            "See what follows with `hexdump-annotate --at OFFSET`. If the record is really that large, raise "
            "`--max record=SIZE`.",
        ),
        "count-out-of-bounds": _make_explanation(
            _E,
            "A declared number of elements does not fit into the remaining bytes.",
            "A damaged count field, or a malicious file.",
            "See what follows with `hexdump-annotate --at OFFSET`.",
        ),
        "varint-overlong": _make_explanation(
            _E,
            "A variable-length integer has more bytes than its type allows.",
            "Damaged bytes, or reading started at a wrong offset.",
            "See what precedes it with `hexdump-annotate --at OFFSET`.",
        ),
        "nesting-too-deep": _make_explanation(
            _E,
            "Values are nested deeper than the limit allows.",
            "Unusually nested data, or a malicious file.",
            "If the data is legitimate, raise `--max depth=N`.",
        ),
        "inflate-limit": _make_explanation(
            _E,
            "The payload would unpack to more bytes than the limit allows; unpacking was stopped there.",
            "A very large legitimate payload, or a decompression bomb.",
            "If the data is legitimate, raise `--max inflate=SIZE`.",
        ),
        "bad-magic": _make_explanation(
            _E,
            "The magic number at the start of a file or record is missing.",
            "Overwritten bytes, a file of another kind, or reading started at a wrong offset.",
            "If it is the start of the file, check that it is the right file; name the format with `--format` to look "
            "inside anyway.",
        ),
        "bad-header": _make_explanation(
            _E,
            "The header of the file or of a record contradicts the format.",
            "Damaged or hand-edited bytes, or a file whose first block was lost.",
            "Compare the header with that of a neighbouring file: `hexdump-annotate --at 0`.",
        ),
        "unsupported-version": _make_explanation(
            _E,
            "The file names a version of the format that this tool does not know.",
            "A server newer or much older than the supported ones, or a damaged version field.",
            "`formats NAME` lists the supported versions. Look for a newer release of this tool.",
        ),
        "unknown-record-type": _make_explanation(
            _W,
            "The record is complete, but its type is not known.",
            "A newer server wrote it, or its type field is damaged in a record without a checksum.",
            "Look at the record with `hexdump-annotate --at OFFSET`; the records around it are not affected.",
        ),
        "reserved-bits-set": _make_explanation(
            _W,
            "Bits that the format reserves, and that should be zero, are set.",
            "A newer server uses them, or the bytes are damaged.",
            "Check the server's version. Without a checksum over these bytes, treat it as damage.",
        ),
        "unmapped-bytes": _make_explanation(
            _W,
            "Bytes inside a structure belong to none of its known fields.",
            "A newer server writes more fields, or a length is wrong.",
            "Look at them with `hexdump-annotate --at OFFSET`, where they are shown as `unmapped`.",
        ),
        ROWS_DIVERGE: _make_explanation(
            _N,
            "The row events do not add up to the table: a foreign key changed rows without an event, or "
            "logged rows were rolled back.",
            "InnoDB applies foreign key actions itself (MariaDB; MySQL where no flag says otherwise), or a "
            "rollback was logged.",
            "Apply the action of the foreign key yourself, and reverse the rows of the transaction that the "
            "message names.",
        ),
        ROWS_NOT_LOGGED: _make_explanation(
            _E,
            "The log has a statement that changes rows, instead of the rows: which rows it changed is not known.",
            "binlog_format is STATEMENT, or MIXED (MariaDB's default), or the server reports lost events.",
            "`dump` shows the statement. Set binlog_format=ROW for the future; with `--on-damage skip`, `convert` "
            "writes the rows that are logged.",
        ),
        COLUMNS_UNKNOWN: _make_explanation(
            _E,
            "The names of the columns of a table are not known, so its rows cannot be written with names.",
            "The log has no names (binlog_row_metadata=MINIMAL, MariaDB's default), and the CREATE TABLE is in an "
            "earlier log.",
            "Give the CREATE TABLE statements with `--schema FILE.sql`, for example from `mysqldump --no-data`, or "
            "name the earlier logs as well.",
        ),
        NOT_REVERSIBLE: _make_explanation(
            _E,
            "A selected change cannot be reversed: there is no flashback script, or it lacks the change (a warning).",
            "The log has a statement instead of changed rows, a table was created, altered or dropped, the row images "
            "lack columns (binlog_row_image), or a foreign key changed rows of another table without an event.",
            "Select the transactions before or after it by GTID, position, time or `--object`; `--skip-ddl` leaves "
            "table definitions unchanged. Restore rows that a foreign key removed from a backup.",
        ),
        "statement-inexact": _make_explanation(
            _E,
            "The script has row changes in a form that may not have exactly the same effect on a server.",
            "`--rows statements` is used, and column names or types are not known, or statements would fire triggers.",
            "Use `--rows exact`, or give `--schema`; the message names the table and the reason.",
        ),
        STATEMENT_LEFT_OUT: _make_explanation(
            _E,
            "Statements of the log are not in the script, although they may change selected objects.",
            "--object or --database select by names that a statement does not have, --skip-ddl leaves out "
            "definitions of "
            "tables, or no statement matches --stop-before.",
            "Look at the statement that the message names; select by position, GTID or time instead.",
        ),
        CHANGED_LATER: _make_explanation(
            _W,
            "Rows that the flashback reverses were changed again later in the log, by changes that are not selected.",
            "The selection (--where, GTIDs, positions, times) includes one change of a row, but not the later ones.",
            "Select the later changes as well, or check these rows yourself: the flashback does not find "
            "them, or gives "
            "them the values from before the later change.",
        ),
        "statement-large": _make_explanation(
            _W,
            "The script has a statement that is larger than what servers accept by default.",
            "An event has one large row, and is not split, because the server could not join the parts again.",
            "Raise max_allowed_packet on the server that runs the script, as the message says; the client "
            "needs no setting.",
        ),
        "stopped-before": _make_explanation(
            _W,
            "The script ends here because of `--stop-before`.",
            "The statement given to `--stop-before` is in the next transaction.",
            "Nothing; the message has the position, the GTID and the time of that transaction.",
        ),
        "payload-undecodable": _make_explanation(
            _E,
            "The frame of the record is intact, but its content does not follow the format.",
            "A bug in the server that wrote it, or damage in a format without checksums.",
            "`dump --decode header` still shows the record; `hexdump-annotate` shows how far its content can "
            "be decoded.",
        ),
        "text-undecodable": _make_explanation(
            _W,
            "Text is not valid in its character set; it is shown as bytes.",
            "Binary data in a text column, another character set than declared, or damage.",
            "Check the character set of the object. No byte is lost: the output has the value as `$bytes`.",
        ),
        "duplicate-key": _make_explanation(
            _W,
            "A map holds the same key twice; which value counts depends on the reader.",
            "A bug in the writer, or a malicious file.",
            "Look at the record with `hexdump-annotate`: it shows both values.",
        ),
        "compression-error": _make_explanation(
            _E,
            "A compressed payload in a log, or a compressed log file (.gz, .zst), cannot be unpacked completely.",
            "Damaged bytes, a copy that was cut, or an unsupported compression method.",
            "Copy a compressed file again from where it was compressed; the records before the cut are read. Records "
            "in a payload are lost in this file; look for them in a replica or a backup.",
        ),
        "gap-in-sequence": _make_explanation(
            _E,
            "Sequence numbers are missing between two records or two files.",
            "A file of the log was deleted or not copied, or the records between were lost.",
            "Find the missing file. If the gap is at a damaged range, that range contained the missing records.",
        ),
        "sequence-regression": _make_explanation(
            _E,
            "A sequence number is smaller than one before it.",
            "Files of two servers in one directory, a restored backup that continued to write, or an old "
            "disk block that "
            "reappeared.",
            "Check the origin of the files (server or instance id in the header) before anything is replayed.",
        ),
        "duplicate-sequence": _make_explanation(
            _E,
            "Two records have the same sequence number.",
            "A file or a block was written or copied twice, or two servers wrote into one log.",
            "Compare both records with `dump`. A replay would apply both or fail at the second.",
        ),
        "time-regression": _make_explanation(
            _W,
            "A timestamp is earlier than the one before it.",
            "The clock of the server was set back, or files are in a wrong order.",
            "Nothing, if the clock is the reason. Selections by time may miss records here.",
        ),
        "dangling-reference": _make_explanation(
            _E,
            "The record refers to something that is not present: a table map, an index, a node or a blob.",
            "The object that it refers to is in a missing file, or was lost in a damaged range.",
            "Look for the missing file. The record cannot be applied without it.",
        ),
        "incomplete-transaction": _make_explanation(
            _E,
            "A transaction has a beginning but no end.",
            "At the end of the newest file: a crash in the middle of it (then this is a note). Elsewhere: its end was "
            "lost.",
            "At the tail nothing: the server drops it. Elsewhere take the file from a replica or a backup.",
        ),
        "damaged-range": _make_explanation(
            _E,
            "These bytes were skipped because no record in them can be proven.",
            "The record before the range, or a length in it, is damaged; the next provable record is named.",
            "Look at the range with `hexdump-annotate --at OFFSET`. `dump --on-damage salvage` also shows unproven "
            "candidates.",
        ),
        "valid-after-damage": _make_explanation(
            _E,
            "Complete, provable records follow a damaged range.",
            "Damage in the middle of the file, not a crash at its end.",
            "Do not truncate the file at the damage: these records would be lost. `truncate-to-durable` "
            "refuses it unless "
            "`--allow-discard-valid` is given; with `--to-file NEW --keep-after-damage` it writes a log "
            "without the damage.",
        ),
        "missing-member": _make_explanation(
            _E,
            "A file that belongs to the log is missing.",
            "It was deleted, moved or not copied; or the index was not updated after a purge.",
            "Restore the file. If it was purged on purpose, check that a newer snapshot or backup covers it.",
        ),
        "extra-member": _make_explanation(
            _W,
            "The directory has a file that the log does not list.",
            "A leftover of an interrupted purge or rotation, or a file of another log.",
            "Find out where it comes from before you remove it; it may hold the only copy of some records.",
        ),
        "member-not-named": _make_explanation(
            _N,
            "Several files of a log were named, but not an existing file between them: that file was not checked.",
            "A list of paths that leaves a file out, or a pattern that does not match it.",
            "Name all files of the log, or its directory.",
        ),
        "meta-mismatch": _make_explanation(
            _E,
            "The meta file or index does not match the files themselves.",
            "A crash during rotation, files restored from different moments, or a hand-edited meta file.",
            "Trust the files rather than the list; compare positions with `dump --limit 1` and `dump --tail 1`.",
        ),
        "path-outside-set": _make_explanation(
            _E,
            "A meta file names a path outside its own directory; that file was not opened.",
            "Logs on several disks, a moved directory, or a malicious file.",
            "If the path is right, pass that file to the command explicitly.",
        ),
        "silent-loss": _make_explanation(
            _E,
            "A server that replays this log would lose records without an error.",
            "Damage that the server takes for the end of the log, missing files that it does not notice, or "
            "records that its "
            "rules skip.",
            "Do not start the server on this log before the records are safe: `dump` still shows them, and "
            "`replay-dry-run --explain RECORD` names the rule.",
        ),
        "changed-while-read": _make_explanation(
            _E,
            "The size, timestamp or content of the file changed while it was read, or since the saved state.",
            "A server is writing to it, a copy is still running, or the file was replaced.",
            "Stop the writer, or use `--live` for a file that may grow.",
        ),
        "changed-since-run": _make_explanation(
            _E,
            "The part of the file that an earlier run recorded (`verify --state`) has other bytes now, or is cut.",
            "Bit rot, a copy that replaced the file, or a server that began again with the same file name.",
            "Compare the file with its source. If the change is right, use a new state file.",
        ),
        "input-unreadable": _make_explanation(
            _E,
            "A file that was named could not be opened, or vanished before it was read: the output has none "
            "of its records.",
            "It was purged or moved in the meantime, does not exist on the machine that reads it, or is not readable.",
            "Restore it and convert it separately, or read from a copy that is not purged.",
        ),
    }
)
"""Finding id -> its explanation and default severity."""


def make_finding(
    id: str,
    offset: int | None,
    length: int,
    message: str,
    *,
    record: int | None = None,
    severity: Severity | None = None,
    **facts: Any,
) -> Finding:
    """Create a finding with the default severity of its id, unless `severity` overrides it.

    Raises:
        KeyError: the id is not in `EXPLANATIONS` (a bug, caught by tests).
    """
    effective_severity = EXPLANATIONS[id].severity if severity is None else severity
    return Finding(id, effective_severity, offset, length, message, record, MappingProxyType(facts))


class CappedFindings:
    """Collector of findings; findings beyond the cap of their id are only counted, and the count is reported."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Add findings, up to the cap for each id."""
        for item in findings:
            self._counts[item.id] += 1
            if self._counts[item.id] <= self._cap:
                self._findings.append(item)

    def as_tuple(self) -> tuple[Finding, ...]:
        """Return the findings in file order, with the counts of those beyond the cap after them."""
        findings = sorted(self._findings, key=lambda one: -1 if one.offset is None else one.offset)
        for id_, count in self._counts.items():
            if count > self._cap:
                text = f"{count - self._cap:,} more findings of this kind are not listed"
                last = next(one for one in reversed(findings) if one.id == id_)
                findings.append(
                    make_finding(id_, last.offset, 0, text, severity=last.severity, not_listed=count - self._cap)
                )
        return tuple(findings)


def finding_to_value(item: Finding) -> dict[str, Any]:
    """Return a finding as a dictionary, an item of `findings` in JSON outputs."""
    return {
        "id": item.id,
        "severity": item.severity.label,
        "offset": item.offset,
        "length": item.length,
        "record": item.record,
        "message": item.message,
        "facts": dict(item.facts),
    }
