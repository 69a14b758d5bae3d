"""Description of a log format: detection, reading, validation, output, repair.

A format reports flipped bits only for a damaged header, and only if they are proven. The file is then read with the bit
corrected, and every report contains a finding about it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from construct import Construct
from msgspec.structs import replace

from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.layout import Batch, Checksum, Column, Kernel, LogFileLayout, RangeReader, locate_bit_flip
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import ChangeReader, ScriptOptions, ScriptWriter, TableSupport
from binlogtool.format_api.schema_fields import BodySchema
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.format_api.layout import BufferDecryptor, SplitFinder
    from binlogtool.format_api.row_output_interfaces import EventGroupReader


RowChange = Mapping[str, Any]
"""Images of a changed row: before, after, key, operations; count = the number of rows, if it is not one."""

_NOTHING: Mapping[str, Any] = {}


class RowChanges(NamedTuple):
    """Row changes of one table.

    Args:
        table: its name, if a record may be about several tables; "" = the table of the record.
        key: columns of the primary key, in the key's order; () = unknown.
        numbers: columns whose values are numbers, although they are stored as texts (DECIMAL).
    """

    rows: Sequence[RowChange]
    table: str = ""
    key: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()


class RecordText(NamedTuple):
    """Readable content of one record.

    Args:
        members: members of the body to show.
        note: a word or two after the record's name.
        statements: SQL texts.
        is_noise: the record has no information about data; it is left out unless everything is requested.
    """

    members: Mapping[str, Any] = _NOTHING
    note: str = ""
    changes: Sequence[RowChanges] = ()
    statements: Sequence[Any] = ()
    is_noise: bool = False


RecordDescriber = Callable[[str, Mapping[str, Any], bool], RecordText]
"""Function (type, body, are all members requested?) that describes a record. It is called in log order."""


def select_members(body: Mapping[str, Any], hidden: frozenset[str]) -> dict[str, Any]:
    """Return the members of a body that are neither hidden nor empty."""
    return {name: value for name, value in body.items() if name not in hidden and not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | bytes | list | tuple | Mapping) and not value)


# --- Values too long to hold in memory ---

PIECE_SIZE = 1 << 20
"""Number of bytes, or of characters of a text, in one piece."""


class LongValue(msgspec.Struct, frozen=True):
    """A text, or bytes, in pieces. pieces: each call restarts; the pieces of a text are UTF-8, split anywhere."""

    pieces: Callable[[], Iterator[bytes]]
    is_text: bool


class BodyWithLongValues(NamedTuple):
    """A body that contains long values."""

    body: Any


def make_long_value(pieces: Callable[[], Iterator[bytes]]) -> LongValue:
    """Create a long value: a text if the bytes are valid UTF-8, else bytes; reads all pieces once."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    is_text = True
    for piece in pieces():
        try:
            is_text = is_text and decode(piece) is not None
        except UnicodeDecodeError:
            is_text = False
    try:
        is_text = is_text and decode(b"", True) is not None
    except UnicodeDecodeError:
        is_text = False
    return LongValue(pieces, is_text)


def split_into_pieces(data: bytes) -> Callable[[], Iterator[bytes]]:
    """Return a function that yields the bytes `data` in pieces."""
    return lambda: (data[at : at + PIECE_SIZE] for at in range(0, len(data), PIECE_SIZE))


# --- Parsers of GTID sets and GTID positions given by the user ---

TransactionPredicate = Callable[[str | None], bool]
"""Predicate for a transaction, given by its text in `EnvelopeColumns.txn` (None = no transaction): is it selected?"""


class GtidParsers(msgspec.Struct, frozen=True):
    """Parsers of the GTID texts of a format. All raise `UsageError` for an invalid text.

    Args:
        parse_set: a set -> predicate: is a transaction in it?
        parse_after: a position -> predicate: is a transaction after it?
        parse_until: a position -> predicate: is a transaction at or before it?
    """

    parse_set: Callable[[str], TransactionPredicate]
    parse_after: Callable[[str], TransactionPredicate]
    parse_until: Callable[[str], TransactionPredicate]


class GtidSelection(NamedTuple):
    """GTID texts of a selection (see `GtidParsers`): after a position, up to a position, within a set."""

    start: str | None
    stop: str | None
    include: str | None


# --- Envelope columns of records, and bodies with findings ---


class BodyWithFindings(NamedTuple):
    """A body that can be shown, with findings about it."""

    body: Any
    findings: tuple[Finding, ...]


class EnvelopeColumns(msgspec.Struct, frozen=True):
    """Envelope fields of consecutive records, one list entry per record.

    time: microseconds since 1970-01-01 UTC. Entries are None where the format has no such value.
    """

    type: list[str]
    seq: list[int | None]
    time: list[int | None]
    object: list[str | None]
    origin: list[int | None]
    txn: list[str | int | None]

    def part(self, start: int, stop: int) -> EnvelopeColumns:
        """Return the envelopes of the records `[start, stop)`."""
        cut = slice(start, stop)
        return EnvelopeColumns(
            self.type[cut], self.seq[cut], self.time[cut], self.object[cut], self.origin[cut], self.txn[cut]
        )


class DecodedRecords(msgspec.Struct, frozen=True):
    """Consecutive decoded records of one file; all sequences are equally long.

    Args:
        record: index in the file, counting provable records from 0.
        offset, size: bytes of the file (of the container, for records inside a packed frame: then `inner` has the
            position).
        envelope: the columns type, seq, time, object, origin, txn.
        checksum: the stored and computed checksums, or None.
        bodies: as `dump` shows them, but bytes stay bytes; None for a body that cannot be decoded. In an SQL script,
            the text for the record.
        extras: additional members of `dump`, or None.
        findings: index in the run -> findings about that record alone.
    """

    record: Sequence[int]
    offset: Sequence[int]
    size: Sequence[int]
    inner: Sequence[Any]
    envelope: EnvelopeColumns
    checksum: Sequence[Any]
    bodies: Sequence[Any]
    extras: Sequence[Mapping[str, Any] | None] | None
    findings: Mapping[int, tuple[Finding, ...]]

    def __len__(self) -> int:
        return len(self.record)


# --- Detection ---


class FormatMatch(NamedTuple):
    """Match of a file's head with a format: its score (0 = none, 100 = certain), and the reason as text.

    From 50, a head or a record is proven; from 20, the file may be one that a server left, with a torn head.
    """

    score: int
    reason: str

    @property
    def is_proven(self) -> bool:
        """True if the content proves the format."""
        return self.score >= 50


class ReadableFile(NamedTuple):
    """A file that is read in parts: a read function, and its size in bytes."""

    read: RangeReader
    size: int


class Hints(msgspec.Struct, frozen=True):
    """Facts from the user that the log does not contain: contents of the files given; None = not given.

    Args:
        keyfile: keys of encrypted logs (a key file or a keyring).
        keyfile_secret: secret with which the key file itself is encrypted.
        schema: CREATE TABLE statements, for names and types of columns.
        level: which units count as records: the name of one of the format's `levels`.
        redo: path of the redo log that recovery would use.
        objects: records are selected by object, or as statements: if `level` is not given, use the level whose records
            have an object.
        as_stored: do not apply the column definitions in the log's statements, so that the state is the same even where
            statements were lost or never logged.
        earlier: the state that earlier files carry over to the first file, as JSON ({"name": name of the last earlier
            file, "carried": …}).
        keyfile_name: path of the file with the keys, for messages.
        reported_tables: tables whose `rows-diverge` findings earlier parts of the log reported.
    """

    keyfile: bytes | None = None
    keyfile_secret: bytes | None = None
    schema: str | None = None
    level: str | None = None
    redo: str | None = None
    objects: bool = False
    as_stored: bool = False
    earlier: str | None = None
    keyfile_name: str | None = None
    reported_tables: tuple[str, ...] = ()


class PrecedingFiles(msgspec.Struct, frozen=True):
    """Files before a file of a log, and the state that they carry over.

    last_name: name of the last one. compute_state: name of the format that asks -> `SplitFinder.export_state` at the
    end of that file; None if the file has another format.
    """

    last_name: str
    compute_state: Callable[[str], Any]


class FileHead(msgspec.Struct, frozen=True):
    """Input of `layout` and `detect`: the first bytes of a file (at most 4 KiB), its name and its size.

    Args:
        size: None for a stream.
        shared: one dictionary for all files of a log, in log order: state that a format learns in one file and needs in
            the next (names of spaces, table maps).
        peek: function that reads `[offset, offset + size)` anywhere in the file, less at its end; None for a stream.
            For few and small reads.
        hints: hints given by the user.
        read_sibling: name of a file in the same directory -> its reader, or None if there is none (links are not
            followed); None where the file has no directory.
        redo: the redo log that the user named.
        preceding: the files before this one, see `PrecedingFiles`.
    """

    data: bytes
    name: str
    size: int | None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)
    peek: Callable[[int, int], bytes] | None = None
    hints: Hints = Hints()
    read_sibling: Callable[[str], RangeReader | None] | None = None
    redo: ReadableFile | None = None
    preceding: PrecedingFiles | None = None

    @property
    def is_whole(self) -> bool:
        """True when `data` is the whole file."""
        return self.size is not None and self.size <= len(self.data)


# --- Validation ---


class ValidationResult(msgspec.Struct, frozen=True):
    """Result of the validation of one file.

    Args:
        transactions: number of complete transactions.
        record_types: type name -> number of records.
        findings: findings that are only known at the end of the file.
        durable_end: None = the engine's rule (end of the last good frame before damage).
        facts: passed to `validate_set` (frozen, opaque to the engine).
        details: extra JSON for the report.
        repairable: False = there is no durable end, because the file's header is damaged.
        sequences: first and last sequence number, if `ValidationRules.validator_reports_sequences`.
    """

    transactions: int
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...] = ()
    durable_end: int | None = None
    facts: Any = None
    details: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    repairable: bool = True
    sequences: tuple[int | None, int | None] = (None, None)


class Validator(Protocol):
    """Validator of the records of one file, in file order: sequences, transactions, cross-references."""

    def validate_batch(self, batch: Batch) -> Sequence[Finding]:
        """Return the findings of this batch (absolute offsets)."""

    def skip_damage(self, start: int, end: int) -> None:
        """Note that `[start, end)` of the file was skipped: a sequence gap here needs no separate finding."""

    def finish(self, tail: FileTail) -> ValidationResult:
        """Return the result at the end of the file."""


class FileTail(msgspec.Struct, frozen=True):
    """End of a file.

    Args:
        end: offset of the end of the last good frame.
        size: bytes of the file.
        closed: True if the end mark was found; None = the format has none.
        first_damage: start of the first skipped range, or None.
    """

    end: int
    size: int
    closed: bool | None
    first_damage: int | None
    findings: tuple[Finding, ...] = ()


class SetMember(msgspec.Struct, frozen=True):
    """One file of a set for `validate_set`: name relative to the set, layout, result and tail (None = not read)."""

    name: str
    layout: LogFileLayout | None
    verdict: ValidationResult | None
    tail: FileTail | None


class FileLink(msgspec.Struct, frozen=True):
    """Two files of a log that are read one after the other: names and layouts. read_end: reads the end of the first."""

    before: str
    after: str
    before_layout: LogFileLayout
    after_layout: LogFileLayout
    read_end: Callable[[], bytes]


class SetFinding(msgspec.Struct, frozen=True):
    """Finding about a set. `file`: name of the member that it is about, which may not exist."""

    file: str
    finding: Finding
    replaces_ids: tuple[str, ...] = ()
    """Ids of the file's findings that this finding replaces (such as a torn tail that turns out to be lost rows)."""


# --- Rules for compiled JSON lines ---

JsonEncoder = Callable[[Any], bytes]
"""Function that encodes any JSON value as the general writer does."""


class JsonMember(msgspec.Struct, frozen=True):
    """Kernel that writes the value of one member of a JSON line, and its inputs.

    Args:
        kernel: `kernel(buf, texts, notes, out, o, z, *columns) -> next`: writes to `out[o:z]` and returns the end of
            the written bytes, or `format_api.json_text_kernels.NO_SPACE`, or `UNSUPPORTED` (the general writer writes
            this record). None = there are only `bodies`.
        columns: the record columns (of the batch or `JsonLine.derive`) whose values the kernel receives; its `buf` is
            the arena, its `notes` are 256 integers for its own use.
        texts, names, table: the kernel's `texts`, at most one of the three: the table of
            `format_api.json_text_kernels.write_text_of_table` (as JSON); that of `write_text_of_number` in the same
            module, which may grow while envelopes are decoded; or a function that returns a format-specific table;
            called after `derive`, it must return the same object as long as its content has not changed.
        bodies: bodies written from schemas; the kernel receives only other records.
    """

    kernel: Kernel | None
    columns: tuple[str, ...] = ()
    texts: Mapping[int, str] | None = None
    names: Mapping[int, str | None] | None = None
    table: Callable[[JsonEncoder], bytes] | None = None
    bodies: JsonBodies | None = None


class JsonBodies(msgspec.Struct, frozen=True):
    """Bodies that compiled code writes according to their schemas.

    Args:
        by_code: value of the column `code` -> body schema, the most frequent first.
        start, end: the columns with the range of the body in the arena.
        parameters: names of the parameters of `BodySchema`, and the columns that hold them.
    """

    by_code: tuple[tuple[int, BodySchema], ...]
    code: str
    start: str
    end: str
    parameters: tuple[tuple[str, str], ...] = ()


class JsonLine(msgspec.Struct, frozen=True):
    """Kernels that write the most frequent records as JSON lines, byte for byte like the general writer.

    The members are those of `EnvelopeColumns`, `body`, and those of `decode_extras`; the engine writes all others. A
    record from which `decode_envelopes` learns state for later records must be UNSUPPORTED, unless `derive` also learns
    it.

    Args:
        depth: the deepest nesting that is printed.
        narrow: (column names, rows only) -> a `body` member for queries that need only these columns: it leaves out
            other columns, and perhaps everything but rows; a body that cannot be decoded is also UNSUPPORTED.
        derive: (batch, `compile`) -> additional columns, one value per record, that depend on earlier records (the
            transaction or table that a record belongs to). Called in file order for each batch that compiled code may
            write, perhaps twice and after `decode_envelopes`; for other batches only `decode_envelopes` is called. None
            = the general writer writes this batch. The columns are valid until the next batch.
        inside: the records are inside other records (`format_api.layout.RecordPositions.record`), and have no
            checksums.
    """

    type: JsonMember
    seq: JsonMember
    time: JsonMember
    object: JsonMember
    origin: JsonMember
    txn: JsonMember
    body: JsonMember
    extras: tuple[tuple[str, JsonMember], ...] = ()
    depth: int = 16
    narrow: Callable[[frozenset[str], bool], JsonMember] | None = None
    derive: Callable[[Batch, Callable[[Kernel], Kernel]], Mapping[str, Column] | None] | None = None
    inside: bool = False


# --- Header repair by one flipped bit ---


class HeaderFlip(NamedTuple):
    """One flipped bit of a file header.

    Args:
        byte: file offset.
        bit: 0 = least significant.
        proof: the proof of the corrected header, as text.
        start, length: the part of the header that is wrong.
        id, diagnosis, more: id, text and further facts of the finding.
    """

    byte: int
    bit: int
    proof: str
    start: int
    length: int
    id: str = "bad-header"
    diagnosis: str = "bit-flip-in-head"
    more: Mapping[str, Any] = MappingProxyType({})

    def correct_bytes(self, offset: int, view: memoryview | bytearray) -> None:
        """Flip the bit back in bytes that begin at this file offset."""
        if 0 <= self.byte - offset < len(view):
            view[self.byte - offset] ^= 1 << self.bit


HeaderFlipFinder = Callable[["FileHead"], Iterator[HeaderFlip]]


def correct_head(head: FileHead, flip: HeaderFlip) -> FileHead:
    """Return the head with the flipped bit corrected."""
    data = bytearray(head.data)
    flip.correct_bytes(0, data)
    peek = head.peek
    return replace(head, data=bytes(data), peek=None if peek is None else _make_correcting_reader(peek, flip))


def _make_correcting_reader(read: RangeReader, flip: HeaderFlip) -> RangeReader:
    def patched(offset: int, size: int) -> bytes:
        data = bytearray(read(offset, size))
        flip.correct_bytes(offset, data)
        return bytes(data)

    return patched


def make_layout_with_corrected_header(layout: LogFileLayout, flip: HeaderFlip) -> LogFileLayout:
    """Return a layout made of the corrected head, for reading the uncorrected file."""

    def decrypt(read: RangeReader) -> BufferDecryptor:
        return flip.correct_bytes

    return replace(layout, findings=(make_corrected_header_finding(flip), *layout.findings), decrypt=decrypt)


def make_corrected_header_finding(flip: HeaderFlip) -> Finding:
    """Create the finding about the corrected header, which every report contains."""
    text = (
        f"one flipped bit explains the damaged header: bit {flip.bit} of byte {flip.byte:#x}; the file is "
        f"read with that bit corrected"
    )
    facts: dict[str, Any] = {"flipped_byte": flip.byte, "flipped_bit": flip.bit, "proof": flip.proof}
    facts |= {"cause": "flipped-bit", "cause_offset": flip.byte, "cause_length": 1, "cause_bit": flip.bit}
    facts |= {"diagnosis": flip.diagnosis, **flip.more}
    return make_finding(flip.id, flip.start, flip.length, f"{text} ({flip.proof})", **facts)


def is_header_correction(item: Finding) -> bool:
    """Return True for a finding about a header that is read with a corrected bit."""
    return {"flipped_byte", "proof"} <= item.facts.keys()


def find_bit_flip_by_checksum(
    checksum: Checksum, data: bytes, stored_offset: int, base_offset: int
) -> tuple[int, int] | None:
    """Return the flipped bit (file offset of its byte, bit number) that explains a checksum mismatch.

    The little-endian checksum after `data[:stored_at]` covers these bytes. Return None if it matches, or if no single
    bit explains the mismatch.

    Args:
        base_offset: file offset of the data.
    """
    stored = int.from_bytes(data[stored_offset : stored_offset + 4], "little")
    flip = locate_bit_flip(checksum, stored, checksum(data[:stored_offset]), stored_offset)
    if flip is None:
        return None
    return base_offset + flip.byte + (stored_offset if flip.where == "stored" else 0), flip.bit


# --- Repair rules of a format ---


class EngineLock(msgspec.Struct, frozen=True):
    """Lock that a running server holds. name: relative to the directory of the log ("" = the directory itself).

    kind: "flock", or "record" (the POSIX write lock).
    """

    name: str
    kind: str


class ByteEdit(NamedTuple):
    """Replacement of a few bytes at a file offset; `old` and `new` have the same length."""

    offset: int
    old: bytes
    new: bytes


class ResultPiece(NamedTuple):
    """Run of bytes of a repaired file: `[start, end)` of the original, or new bytes: `data`, or a number of zeros."""

    start: int = 0
    end: int = 0
    data: bytes | None = None
    zeros: int = 0

    @property
    def is_original(self) -> bool:
        """True if these are bytes of the original file."""
        return self.data is None and not self.zeros

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.start if self.is_original else self.zeros or len(self.data or b"")


class FrameHeaderFix(NamedTuple):
    """Frame in a damaged range that is proven except for its header: `head` replaces the bytes at `start`.

    start, end: range of the frame, counted from the start of the damaged range. No checksum is recomputed.
    """

    start: int
    head: bytes
    end: int


class VerifiedFile(msgspec.Struct, frozen=True):
    """Verified file of a log. record_types: type -> number of complete records. read: reads its bytes."""

    name: str
    size: int
    durable_end: int | None
    record_types: Mapping[str, int]
    findings: tuple[Finding, ...]
    read: RangeReader


class RewrittenFile(msgspec.Struct, frozen=True):
    """Planned change of one file of a log.

    Args:
        action: "zero-fill", "rewrite" or "remove" (then there are no pieces).
        durable_end: offset in the file; None = no part of it is durable.
        lost: number of discarded bytes with content, not counting zeros and padding.
        proof: additions to the usual proof of a plan.
        like: for a file that does not exist yet, the file whose mode and owner it gets.
    """

    name: str
    action: str
    pieces: tuple[ResultPiece, ...]
    durable_end: int | None
    lost: int
    proof: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    like: str | None = None


class JointRepair(msgspec.Struct, frozen=True):
    """Repair of a log whose files change together.

    Args:
        files: the files that change.
        reasons: why the repair must not be done.
        proven: True if a redo log proves that the discarded records were never durable; otherwise no complete record is
            discarded without the user's consent.
    """

    files: tuple[RewrittenFile, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    proven: bool = False


JointRepairPlanner = Callable[[Sequence[VerifiedFile], "ReadableFile | None", bool], JointRepair]
"""Function (all files in log order, redo log named by the user, may complete records after damage be discarded?) -> the
repair of the log. The engine itself checks the result for damage."""


class FileFix(msgspec.Struct, frozen=True):
    """File without records in the log's directory, and the content that it should have.

    Args:
        content: None = the file is removed; the undo file keeps its bytes.
        reason: the reason, as the plan shows it.
        like: for a file that does not exist yet: the one whose mode and owner it gets.
    """

    name: str
    content: bytes | None
    reason: str
    like: str | None = None


class RepairRules(msgspec.Struct, frozen=True):
    """Rules of a format for repairs that do more than truncate to the durable end.

    Args:
        locks: the locks of a running server.
        close_mark: layout -> the bytes that close a file of this kind after a whole record, or None.
        head_edits: (layout, reader of the file) -> the edits of `--fix-meta` in the file itself.
        edits_note: note for the user about these edits.
        fix_files: (names of the log's files, reader by name) -> files that `--fix-meta` makes consistent with the log.
        gaps: text about what missing records in the middle mean to the server, shown with a salvaged log.
        numbered: True if every record has a number, without gaps: if `verify` finds no gap, no record is missing.
        salvage_obstacle: why a log cannot be written without some records, or None; a function of the layout if it
            depends on the file.
        fix_frames: (layout, damaged range) -> frames in it that are whole except for their header, in order.
        derived: types of records that only repeat other records and that a server writes again: inside an unfinished
            record they do not count as lost.
        transactions: for formats in which whole records of an unfinished transaction can be durable: the member of the
            validator's details with the end of the last record, before any damage, outside such a transaction;
            `--transactions` truncates after it.
        plan_joint_repair: for logs whose files must change together: function that plans the change of every file; no
            file is then truncated at its own durable end.
        redo: possible paths of the redo log that recovers a log, relative to the log's directory, most common first.
    """

    locks: tuple[EngineLock, ...] = ()
    close_mark: Callable[[LogFileLayout], bytes | None] | None = None
    head_edits: Callable[[LogFileLayout, RangeReader], Sequence[ByteEdit]] | None = None
    edits_note: str = ""
    fix_files: Callable[[Sequence[str], Callable[[str], RangeReader]], Iterable[FileFix]] | None = None
    gaps: str = ""
    numbered: bool = False
    salvage_obstacle: str | Callable[[LogFileLayout], str | None] | None = None
    fix_frames: Callable[[LogFileLayout, bytes], Iterable[FrameHeaderFix]] | None = None
    derived: frozenset[str] = frozenset()
    transactions: str | None = None
    plan_joint_repair: JointRepairPlanner | None = None
    redo: tuple[str, ...] = ()

    def explain_salvage_obstacle(self, layout: LogFileLayout | None = None) -> str | None:
        """Return why no record may be left out of a file with this layout (or, without it, of any log), or None."""
        if not callable(self.salvage_obstacle):
            return self.salvage_obstacle
        return None if layout is None else self.salvage_obstacle(layout)


TRUNCATION_USELESS = "whole_or_nothing"
"""Fact of a finding: truncation cannot make this file acceptable to its server; another copy of the file is needed."""
SERVER_TRUNCATES = "server_cuts_tail"
"""Member of the validator's details: True = the server itself truncates the bytes after the durable end, if they
contain no complete record."""

DEFAULT_REPAIR = RepairRules()
"""Rules for formats whose repair is only truncation."""


# --- The description of a format ---


class LogFileRules(msgspec.Struct, frozen=True):
    """File names of a log.

    Args:
        patterns: file name patterns (fnmatch); the content decides whether a matching file belongs to the format.
        sort_names: names -> names in the log's own order.
        log_directory: path of a member -> directory of its log ("" = the top); None = the directory of the file.
        name_stem: base name -> the part that is common to all files of one server; None = not a name of a log file.
        log_patterns: those of `patterns` that other software hardly uses: a file with such a name that holds neither
            header nor record was a log.
        temporary_patterns: patterns of files that a running server creates and removes again.
        mutable_header: bytes `[start, end)` at the start of a file that a server changes although they are durable;
            they are ignored when files with the same name are distinguished.
    """

    patterns: tuple[str, ...]
    sort_names: Callable[[Sequence[str]], list[str]] | None = None
    log_directory: Callable[[str], str] | None = None
    name_stem: Callable[[str], str | None] = lambda _name: ""
    log_patterns: tuple[str, ...] = ()
    temporary_patterns: tuple[str, ...] = ()
    mutable_header: tuple[int, int] = (0, 0)


class ReadRules(msgspec.Struct, frozen=True):
    """Rules of a format for detecting and reading files.

    Args:
        detect: head -> its match with the format.
        layout: head -> layout; for bad bytes it returns findings and never raises.
        schemas: all structures, by name.
        variants: names that `--format NAME:VARIANT` accepts; `layout` then gets the keyword argument `variant` (None =
            not given).
        levels: units that can count as records (`Hints.level`), the default first.
        event_level: the level whose records are the events inside the default records: each has the number of its
            containing record, its offset there (`inner`), and an object, which records of the other levels lack.
        find_ranges: (layout context, GTID selection) -> the parts `[start, end)` of the file, between frame boundaries,
            that can hold selected records, in order; None = the whole file.
        split_finder: layout -> the finder of split points, or None: this file is read from its start.
        carries_state: state at the end of a file also holds in the next file of the log
            (`SplitFinder.export_state_for_next_file`).
        event_groups: (layout, limits) -> reader of the event groups of a file, for a log in another container; raises
            `UsageError` if that is impossible. None = the records are not events of a server's binary log.
        clone_context: layout context -> an independent copy with the same state; None = no state is learned from
            records.
        compact_layout: layout -> the part of it that set validation and replay need after the file was read; it is kept
            for each file of a directory. None = all of it.
        find_header_bit_flips: head of a damaged file -> the flipped bits that provably explain it.
        reads_siblings: files are read at any offset, together with other files of their directory.
    """

    detect: Callable[[FileHead], FormatMatch]
    layout: Callable[..., LogFileLayout]
    schemas: Mapping[str, Construct]
    variants: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    event_level: str | None = None
    find_ranges: Callable[[Any, GtidSelection], list[tuple[int, int]] | None] | None = None
    split_finder: Callable[[LogFileLayout], SplitFinder | None] | None = None
    carries_state: bool = False
    event_groups: Callable[[LogFileLayout, Limits], EventGroupReader] | None = None
    clone_context: Callable[[Any], Any] | None = None
    compact_layout: Callable[[LogFileLayout], LogFileLayout] | None = None
    find_header_bit_flips: HeaderFlipFinder | None = None
    reads_siblings: bool = False
    compiled_layouts: Callable[[], Iterable[LogFileLayout]] | None = None


class ValidationRules(msgspec.Struct, frozen=True):
    """Rules of a format for validating files and sets.

    Args:
        validator: (layout, `compile` (kernel -> its fastest callable), limits) -> validator of one file.
        validate_set: members in order -> findings about the set.
        explain_damage: (layout, bytes from the damage on (bounded), file offset, finding of the engine) -> the same
            finding with format-specific facts added (such as "payload intact, length wrong").
        validator_reports_sequences: the validator's result contains the first and last sequence number of a file;
            otherwise they are decoded from the envelopes of its first and last record.
        is_link_proven: two files -> whether it is proven that nothing is between both, or they need not follow each
            other; readers of a set then need no `validate_set` for this link. None = readers do not check links.
        is_closed_end_proven: facts of a file with records -> whether they prove that its writer closed it. None = the
            end mark or the findings of the format say so.
    """

    validator: Callable[[LogFileLayout, Callable[[Kernel], Kernel], Limits], Validator]
    validate_set: Callable[[Sequence[SetMember]], Sequence[SetFinding]] | None = None
    explain_damage: Callable[[LogFileLayout, memoryview, int, Finding], Finding] | None = None
    validator_reports_sequences: bool = False
    is_link_proven: Callable[[FileLink], bool] | None = None
    is_closed_end_proven: Callable[[Any], bool] | None = None


class TableStatement(NamedTuple):
    """A record with a statement. tables: the tables that it names, unquoted.

    changes_rows: it changes or removes rows; False = it defines a table.
    """

    batch_index: int
    tables: tuple[str, ...]
    changes_rows: bool


class OutputRules(msgspec.Struct, frozen=True):
    """Rules of a format for decoding records to output.

    Args:
        types: type code -> name, for all types known to the format.
        type_groups: name -> the type names that it includes.
        decode_envelopes: (layout context, batch, start, stop) -> envelope columns of these records.
        decode_column: (layout context, batch, name, start, stop) -> one of these columns, where it is much cheaper; any
            call learns from the whole batch.
        decode_bodies: the same arguments and limits -> one JSON-able body per record (bytes stay bytes; the report
            wraps them); a body that cannot be decoded is a `Finding` in its place; `BodyWithFindings` = a body and
            findings about it.
        decode_extras: the same arguments -> additional JSON members of each record, or None.
        extra_names: names of these members.

        find_statements: (batch, start, stop, table names, limits) -> the records whose statement names a table; of a
            dropped database, those of the given tables. None = tables have records, not statements.
        gtid_rules: parsers of GTID selections; None = transactions are selected by their texts only.
        sequence_name: what a record's number or GTID is called (LSN, TID, transaction), if consecutive records have
            consecutive numbers; "" = a gap between numbers is no loss.
        is_transaction_end: (type, body; None = not decoded) -> the record is the last of its transaction; None = the
            record alone does not tell. No function = each record is a whole transaction.
        start_script: creates the writer of a log's SQL script; None = records cannot be written as statements.
        start_changes: creates the reader of row changes; None = the log has no row changes with names and types of
            columns.
        start_record_text: creates the describer of records for text output; None = bodies are shown unchanged.
        has_whole_seconds: the times of its records have no fractions.
    """

    types: Mapping[int, str]
    decode_envelopes: Callable[[Any, Batch, int, int], EnvelopeColumns]
    decode_bodies: Callable[[Any, Batch, int, int, Limits], list[Any]]
    decode_extras: Callable[[Any, Batch, int, int], list[Mapping[str, Any] | None]] | None = None
    extra_names: tuple[str, ...] = ()
    decode_column: Callable[[Any, Batch, str, int, int], Sequence[Any]] | None = None
    json_line: Callable[[Any], JsonLine | None] | None = None
    find_statements: Callable[[Batch, int, int, Sequence[str], Limits], Iterator[TableStatement]] | None = None
    gtid_rules: GtidParsers | None = None
    sequence_name: str = ""
    is_transaction_end: Callable[[str, Any], bool | None] | None = None
    start_script: Callable[[ScriptOptions], ScriptWriter] | None = None
    start_changes: Callable[[], ChangeReader] | None = None
    start_record_text: Callable[[], RecordDescriber] | None = None
    type_groups: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    has_whole_seconds: bool = False


class Format(msgspec.Struct, frozen=True):
    """Log format: everything that the engine needs to know about it; its help page is `help.md` in its directory.

    Args:
        repair: rules for repairs beyond truncation to the durable end.
        replay: rules of the server's replay; None = no server replays this kind of log.
        tables: support for tables in its logs; None = records are the only rows.
        references: sources that describe the format.
        variant: the variant that the user selected.
    """

    name: str
    title: str
    files: LogFileRules
    reading: ReadRules
    validation: ValidationRules
    output: OutputRules
    repair: RepairRules = DEFAULT_REPAIR
    replay: ReplayRules | None = None
    tables: TableSupport | None = None
    references: tuple[str, ...] = ()
    variant: str | None = None

    @property
    def spec(self) -> str:
        """Value of `--format` that selects exactly this format and variant."""
        return self.name if self.variant is None else f"{self.name}:{self.variant}"
