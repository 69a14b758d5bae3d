"""Predict which log files a server replays, and how old servers read a damaged transaction.

Source: `docs/spec/manticore.md#start`.

Sphinx 2.2 and Manticore 2.8 do not check lengths ("FIXME? sanitize?" in `LoadVector`): a garbage length makes them
crash, or read zeros for hours. Up to version 13 a wrong checksum alone only ends the replay of the file. Bytes after
the end of the file are read as 0. Source: Sphinx 2.2.11 and Manticore 2.8.2, `RtBinlog_c::Replay*`; crashes of both
were observed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.format import is_header_correction
from binlogtool.format_api.layout import RangeReader
from binlogtool.format_api.replay_rules import (
    DANGLING_LINK,
    DIRECTORY,
    FIFO,
    FILE_LINK,
    UNOPENABLE,
    ExaminedFile,
    ReplaySituation,
    ReplayStop,
)
from binlogtool.format_api.schema_fields import MAX_VARINT_SIZE, read_varint
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.decode import META_NAMES, ManticoreLogContext, MetaContext
from binlogtool.formats.manticore.payload_kernels import LAST_LOW_VERSION, read_zint
from binlogtool.formats.manticore.schema import OldOp
from binlogtool.limits import MIB

# --- Start of a server ---

NO_ID32_VERSION = 7
"""First version of which no build has document ids of 32 bits (Manticore 2.8: "no longer supported")."""
LAST_SPHINX_VERSION = 5
"""Last version of Sphinx; Manticore continues with 6."""
CHECKS_FIRST_VERSION = 16
"""First version in which the server checks the versions of all listed files before it replays the first one."""
FORCES_TRANSACTIONS_VERSION = 14
"""First version in which `ignore-trx-errors` and `ignore-all-errors` are known to exist."""
FORCES_VERSIONS = (14, 15)
"""Versions whose server, set to ignore all errors, starts with files of other versions; 15 deletes such a file."""
SETTINGS_LEAVE_TID = (7,)
"""Versions whose server applies a RECONFIGURE without counting its TID, so the table's next TID is unexpected (observed
for percolate tables of Manticore 2.8.2; those of Sphinx 2.2 and Manticore 6.3 count it).
"""


class ManticoreStartPlan(msgspec.Struct, frozen=True):
    """Plan of one start.

    Attributes:
        files: members that are replayed, in order.
        missing: name of a listed file that does not exist -> number of files that are replayed before it.
        unlisted: members that the server skips.
        version: version of the server.
        unchecked: text saying why it is uncertain whether the server starts.
        uncreatable: why the log that the server writes next cannot be created; None = it can.
    """

    files: tuple[ExaminedFile, ...] = ()
    missing: Mapping[str, int] = msgspec.field(default_factory=dict)
    unlisted: tuple[ExaminedFile, ...] = ()
    version: int = schema.LAST_VERSION
    refusal: ReplayStop | None = None
    no_list: bool = False
    unchecked: tuple[str, ...] = ()
    uncreatable: ReplayStop | None = None


def get_log_context(file: ExaminedFile) -> ManticoreLogContext | None:
    """Return the context of a log file; None for other files."""
    context = None if file.layout is None else file.layout.context
    return context if isinstance(context, ManticoreLogContext) else None


def plan_start(situation: ReplaySituation) -> ManticoreStartPlan:
    """Plan the start of the server that wrote these files. Single files are replayed in the order of their names."""
    logs = tuple(file for file in situation.files if get_log_context(file) is not None or file.layout is None)
    metas = [file for file in situation.files if _get_meta_context(file) is not None]
    server_version = (situation.start_position or {}).get("version")
    entry = situation.other_entries.get(META_NAMES[0])
    if entry is not None and entry != DANGLING_LINK:
        plan = ManticoreStartPlan(unlisted=logs, version=server_version or _get_version(logs))
        if entry == FILE_LINK:
            return msgspec.structs.replace(plan, no_list=True, unchecked=(_describe_link(META_NAMES[0]),))
        why = f"{META_NAMES[0]} is a {entry}: invalid meta file"
        return msgspec.structs.replace(plan, refusal=ReplayStop(META_NAMES[0], None, why))
    if not metas and situation.is_directory:
        plan = ManticoreStartPlan(unlisted=logs, no_list=True)
        return _check_next_log(plan, situation, "binlog.001")
    if not metas:
        return _check_versions(
            ManticoreStartPlan(logs, version=server_version or _get_version(logs)), _get_version(logs)
        )
    plan = _plan_listed_files(metas[0], logs, server_version, situation)
    meta = _get_meta_context(metas[0])
    assert meta is not None
    return _check_next_log(plan, situation, meta.log_name((meta.numbers[-1] if meta.numbers else 0) + 1))


def _describe_link(name: str) -> str:
    return f"not checked: {name} is a symbolic link, which is not followed: the server reads the file that it names"


def _check_next_log(plan: ManticoreStartPlan, situation: ReplaySituation, name: str) -> ManticoreStartPlan:
    """Check the listed logs that are links, and the name of the log that the server creates after the replay."""
    links = [name for name in plan.missing if situation.other_entries.get(name) == FILE_LINK]
    if links:
        return msgspec.structs.replace(plan, missing={}, unchecked=tuple(map(_describe_link, links)))
    entry = situation.other_entries.get(name)
    if entry not in (DIRECTORY, FIFO, UNOPENABLE):
        return plan
    stop = ReplayStop(name, None, f"failed to create {name}: it is a {entry}")
    return msgspec.structs.replace(plan, uncreatable=stop)


def _get_version(logs: tuple[ExaminedFile, ...]) -> int:
    contexts = [context for context in map(get_log_context, logs) if context is not None]
    return contexts[0].version if contexts else schema.LAST_VERSION


def _get_meta_context(file: ExaminedFile) -> MetaContext | None:
    context = None if file.layout is None else file.layout.context
    return context if isinstance(context, MetaContext) and not context.leftover else None


def _plan_listed_files(
    file: ExaminedFile, logs: tuple[ExaminedFile, ...], server_version: int | None, situation: ReplaySituation
) -> ManticoreStartPlan:
    whole = situation.is_directory
    meta = _get_meta_context(file)
    assert meta is not None
    version = server_version or meta.version or _get_version(logs)
    is_magic_bad = any(one.facts.get("diagnosis") == "meta magic bad" for one in file.findings)
    if meta.version is None and not is_magic_bad and len(b"SPLI") <= file.size:
        known_version = server_version or (_get_version(logs) if logs else None)
        if known_version is None or known_version >= schema.NEW_FRAME_VERSION:
            text = "not checked: binlog.meta ends in its head: servers up to version 14 start with an empty list, "
            text += "whether newer ones do is not known"
            return ManticoreStartPlan(unlisted=logs, no_list=True, unchecked=(text,))
        if file.size < schema.HEADER_SIZE:
            refusal = _find_short_meta_refusal(file, known_version, situation)
            return ManticoreStartPlan(unlisted=logs, version=known_version, refusal=refusal, no_list=refusal is None)
        stop = ReplayStop(file.name, 4, "binlog.meta is of another version: recovery requires a server of that version")
        return ManticoreStartPlan(unlisted=logs, version=known_version, refusal=stop)
    refusal = _check_meta(file, meta, version, logs)
    if refusal is not None:
        return ManticoreStartPlan(unlisted=logs, version=version, refusal=refusal)
    by_name = {posixpath.basename(log.name): log for log in logs}
    is_short = meta.version is not None and not (meta.whole or meta.cut)
    numbers = (*meta.numbers, *((0,) if is_short else ()))  # missing numbers are read as 0
    names = list(dict.fromkeys(map(meta.log_name, numbers)))
    files = tuple(by_name.pop(name) for name in names if name in by_name)
    present = {posixpath.basename(log.name) for log in files}
    missing = {name: sum(one in present for one in names[:at]) for at, name in enumerate(names) if name not in present}
    start_plan = ManticoreStartPlan(
        files, missing if whole else {}, tuple(by_name.values()), version, no_list=not names
    )
    return _check_versions(start_plan, meta.version or version)


def _find_short_meta_refusal(file: ExaminedFile, version: int, situation: ReplaySituation) -> ReplayStop | None:
    """Check the version in a list that ends inside it, as servers up to version 14 read it."""
    beside = situation.read_sibling
    read = None if beside is None else beside(posixpath.basename(file.name))
    data = b"" if read is None else read(len(b"SPLI"), file.size - len(b"SPLI"))
    stated_version = _read_truncated_dword(data) if version > LAST_SPHINX_VERSION else 0
    if version <= LAST_SPHINX_VERSION:  # reads 0, then a byte, and requires its version unless the list is empty
        last = next((at for at, byte in enumerate(data[1:]) if byte < 0x80), len(data))
        if not any(byte & 0x7F for byte in data[1 : last + 2]):
            return None
    elif stated_version <= version:
        return None
    text = f"binlog.meta is of version {stated_version}, the server of version {version}"
    return ReplayStop(file.name, 4, f"{text}: recovery requires a server of the version in binlog.meta")


def _read_truncated_dword(data: bytes) -> int:
    """Return the number of which the file has these bytes; as many of the first ones as are missing are read as 0."""
    missing = 4 - len(data)
    return int.from_bytes(bytes(missing) + data[missing:], "little")


def _check_meta(
    file: ExaminedFile, meta: MetaContext, version: int, logs: tuple[ExaminedFile, ...]
) -> ReplayStop | None:
    """Return why the list cannot be used, or None.

    If transactions prove document ids of 4 bytes, the server is a build with such ids.
    """
    for item in file.findings:
        in_head = (item.offset or 0) < schema.HEADER_SIZE  # neither the list nor the digits
        if item.facts.get("server") == "refuse" and in_head:
            return ReplayStop(file.name, item.offset, item.message)
    contexts = [context for log in logs if (context := get_log_context(log)) is not None]
    of_32_bits = any(
        one.version < NO_ID32_VERSION
        and (one.ids_proven or (one.id_size == schema.ID32_SIZE and one.version <= LAST_LOW_VERSION))
        for one in contexts
    )
    is_old = meta.version is not None and meta.version < schema.NEW_FRAME_VERSION
    if is_old and meta.setting != 1 and meta.count and not of_32_bits:  # an empty list is not checked any further
        return ReplayStop(file.name, schema.HEADER_SIZE, "USE_64BIT inconsistency (binary=1, binlog=0)")
    if meta.version is None:
        return ReplayStop(file.name, 0, "the meta file is torn in its magic number")
    is_older = is_old and meta.version < version < schema.NEW_FRAME_VERSION and bool(meta.count)
    if meta.version > version or is_older:
        text = f"binlog.meta is of version {meta.version}, the server of version {version}"
        return ReplayStop(file.name, 4, f"{text}: recovery requires a server of the version in binlog.meta")
    return None


def _check_versions(start_plan: ManticoreStartPlan, meta_version: int) -> ManticoreStartPlan:
    """Check the versions of the files, if the server does so before anything else."""
    if start_plan.version < CHECKS_FIRST_VERSION:
        return start_plan
    refusal = next(_find_foreign_files(start_plan, meta_version), None)
    return (
        start_plan
        if refusal is None
        else ManticoreStartPlan((), start_plan.missing, start_plan.unlisted, start_plan.version, refusal)
    )


def _find_foreign_files(start_plan: ManticoreStartPlan, meta_version: int) -> Iterator[ReplayStop]:
    for file in start_plan.files:
        stated_version = get_stated_version(file)
        if stated_version is not None and stated_version != start_plan.version:
            text = f"the log is of version {stated_version}, the server of version {start_plan.version}"
            yield ReplayStop(file.name, 4, f"{text}: recovery requires the previous server; no replay flag helps")
    if meta_version != start_plan.version:
        for name in start_plan.missing:
            yield ReplayStop(
                name, None, f"a log listed by version {meta_version} cannot be opened, so it may hold data"
            )


def get_stated_version(file: ExaminedFile) -> int | None:
    """Return the version stored in the head of a log that holds data, or None."""
    context = get_log_context(file)
    correction = find_corrected_head(file)
    if correction is not None:
        stored_version: int | None = correction.facts["said_version"]
        return stored_version
    if context is None or file.size <= schema.HEADER_SIZE or context.header not in ("whole", "version not known"):
        return None
    digits = "" if file.layout is None else file.layout.variant.partition(" ")[0].strip("v,")
    return int(digits) if digits.isdecimal() else context.version


def find_corrected_head(file: ExaminedFile) -> Finding | None:
    """Return the finding about the head of a file that is read with a corrected bit, or None."""
    return next(filter(is_header_correction, () if file.layout is None else file.layout.findings), None)


def find_damage_start(file: ExaminedFile) -> int | None:
    """Return the offset of the first bytes that are not a transaction, or None."""
    tail = file.tail
    if tail is None:
        return None
    if tail.first_damage is not None:
        return tail.first_damage
    return tail.end if tail.end < tail.size else None


def find_damage_finding(file: ExaminedFile, offset: int) -> Finding | None:
    """Return the finding about the damage at an offset, preferably one with the server's action, or None."""
    at_offset = [found for found in file.findings if found.offset == offset]
    with_action = [found for found in at_offset if "server" in found.facts]
    return next(iter(with_action or at_offset), None)


def is_loss(damage: Finding | None) -> bool:
    """Return whether the damage is more than the torn end of the last write."""
    return damage is not None and damage.severity is Severity.ERROR


# --- Damaged transactions as read by servers with the old frame ---

MAX_BYTES = 256 * MIB
"""Maximum size in bytes of a vector that a server is assumed to allocate and fill in time."""
MAX_COUNT = 16 * MIB
"""Maximum number of elements that a server is assumed to read one by one in time."""

_OP_AT, _BODY_AT, _CRC_SIZE = 4, 5, 4
_TOKENIZERS = (2, 3)
"""Types of a tokenizer that the servers load (UTF-8, and with n-grams)."""
_FILE_FACTS_SIZE = 28
"""Size, two times and checksum of a file that settings name."""

_INT_MAX = 0x7FFFFFFF
_MINUS_ONE = 0xFFFFFFFF
"""Length that made Manticore 2.8.2 crash in one vector but not in another."""


class ParseDoubt(NamedTuple):
    """Reason why a server may not survive a transaction. stops: it does not (seen wherever it was tried)."""

    why: str
    stops: bool


class _LengthError(Exception):
    """Error: a length that a server may not survive. negative: it is negative as the server's `int`."""

    def __init__(self, message: str, negative: bool) -> None:
        super().__init__(message)
        self.negative = negative


class _TokenizerError(Exception):
    """A type of tokenizer that the server does not load: it stops."""


class _UncheckedReader:
    """Reader with the behaviour of `BinlogReader_c`."""

    def __init__(self, read: RangeReader, position: int, size: int, version: int) -> None:
        self._read, self._position, self._size = read, position, size
        self._read_kernel = read_varint if version <= LAST_LOW_VERSION else read_zint

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._position

    def read_number(self) -> int:
        """Read a number; 0 after the end of the file."""
        if self._position >= self._size:
            return 0
        data = self._read(self._position, MAX_VARINT_SIZE)
        value, after = self._read_kernel(data, 0, len(data))
        self._position += after if after > 0 else len(data)
        return int(value) if after > 0 else 0

    def read_number_as_count(self) -> int:
        """Read a number of elements that are read one by one; one that is negative as the server's `int` is none."""
        count = self.read_number() & 0xFFFFFFFF
        return 0 if count > _INT_MAX else self._check_length(count, MAX_COUNT, 1)

    def skip_vector(self, width: int) -> None:
        """Skip a count and that many elements, which are copied at once.

        A negative count allocates nothing; the bytes to copy are counted as `int`, so that they may be none, or so
        many that the server crashes or reads for ever (seen).
        """
        count = self.read_number() & 0xFFFFFFFF
        copied = count * width & 0xFFFFFFFF
        if count > _INT_MAX and copied <= _INT_MAX:
            if copied:
                raise _LengthError(f"a length of {count:,} at {self._position:#x}", negative=False)
            return
        self._position += width * self._check_length(count, MAX_BYTES, width)

    def read_byte(self) -> int:
        """Read a byte; 0 after the end of the file."""
        byte = self._read(self._position, 1) if self._position < self._size else b""
        self._position += len(byte)
        return byte[0] if byte else 0

    def read_dword(self) -> int:
        """Read four bytes; of those that the file lacks, as many of the first ones are 0."""
        data = self._read(self._position, 4) if self._position < self._size else b""
        self._position += len(data)
        return _read_truncated_dword(data)

    def read_dword_as_count(self) -> int:
        """Read four bytes as a number of elements; a negative one is none."""
        count = self.read_dword()
        return 0 if count > _INT_MAX else self._check_length(count, MAX_COUNT, 1)

    def skip_bytes(self, count: int) -> None:
        """Skip bytes, up to the end of the file."""
        self._position = min(self._position + count, max(self._size, self._position))

    def skip_text(self) -> None:
        """Skip four bytes of length, and the text: it is allocated, and filled only with the bytes that exist."""
        self.skip_bytes(self._check_length(self.read_dword(), _INT_MAX, 1))

    def skip_numbers(self, count: int) -> None:
        """Skip `count` numbers."""
        for _ in range(count):
            if self._position >= self._size:
                return
            self.read_number()

    def skip_named_numbers(self, count: int) -> None:
        """Skip a text and `count` numbers."""
        self.skip_text()
        self.skip_numbers(count)

    def repeat_element(self, element: Callable[[], None]) -> None:
        """Read a count, and each element individually."""
        for _ in range(self.read_number_as_count()):
            if self._position >= self._size:
                return
            element()

    def _check_length(self, value: int, max_bytes: int, width: int) -> int:
        if value * width > max_bytes:
            raise _LengthError(f"a length of {value:,} at {self._position:#x}", _INT_MAX < value < _MINUS_ONE)
        return value


def find_parse_doubt(
    read_range: RangeReader, offset: int, file_size: int, version: int, id_size: int
) -> ParseDoubt | None:
    """Return why the server's reaction to a damaged transaction cannot be determined; None = it only drops the file.

    Args:
        offset: offset of the transaction, whose operation and table are known.
        file_size: size of the file.
        id_size: size of a document id in bytes.
    """
    op = read_range(offset + _OP_AT, 1)[:1]
    kind = op[0] if op else 0
    reader = _UncheckedReader(read_range, offset + _BODY_AT, file_size, version)
    try:
        _read_through_transaction(reader, kind, version, id_size)
    except _TokenizerError as error:
        return ParseDoubt(f"the RECONFIGURE at {offset:#x} has {error}: failed to load settings", True)
    except _LengthError as error:
        text = f"the transaction at {offset:#x} has {error}: the server uses it unchecked, before it verifies the "
        if error.negative:
            return ParseDoubt(f"{text}checksum, and crashes", True)
        return ParseDoubt(f"not checked: {text}checksum, and may crash or read for very long", False)
    return None


def find_settings_doubt(
    read_range: RangeReader, offset: int, transaction_end: int, file_size: int, version: int
) -> ParseDoubt | str | None:
    """Find out why the server does not apply a RECONFIGURE whose checksum is right; None = it does.

    Args:
        transaction_end: offset after the transaction.
        file_size: of the file.

    Returns:
        A text if the server drops the rest of the file, since its settings end elsewhere than at the checksum.
    """
    doubt = find_parse_doubt(read_range, offset, file_size, version, 0)
    if doubt is not None:
        return doubt
    reader = _UncheckedReader(read_range, offset + _BODY_AT, file_size, version)
    _read_through_transaction(reader, OldOp.RECONFIGURE, version, 0)
    place = transaction_end - _CRC_SIZE
    if reader.position == place:
        return None
    return (
        f"its settings end at {reader.position:#x}, not at the checksum at {place:#x}: the server "
        f"considers the checksum wrong"
    )


def _read_through_transaction(reader: _UncheckedReader, kind: int, version: int, id_size: int) -> None:
    """Move the reader over a transaction as an old server does, unchecked. Raises _LengthError, _TokenizerError."""
    if kind == OldOp.ADD_CACHE:
        reader.repeat_element(lambda: reader.skip_named_numbers(5))
        return
    reader.skip_numbers(1)
    if kind == OldOp.ADD_INDEX:
        reader.skip_text()
        return
    reader.skip_numbers(2)
    if kind == OldOp.COMMIT:
        _read_through_commit(reader, version, id_size)
    elif kind == OldOp.RECONFIGURE:
        _read_through_settings(reader, version)
    elif kind == OldOp.UPDATE_ATTRS:
        reader.repeat_element(lambda: reader.skip_named_numbers(1))
        for width in (4, id_size, 4):
            reader.skip_vector(width)
    elif kind == OldOp.PQ_ADD:
        _read_through_query(reader)
    elif kind == OldOp.PQ_DELETE:
        reader.repeat_element(lambda: reader.skip_numbers(1))
        reader.skip_text()


def _read_through_settings(reader: _UncheckedReader, version: int) -> None:
    """Read settings of an index, its tokenizer, its dictionary and its field filter (`LoadIndexSettings` and after)."""
    reader.skip_bytes(13)
    reader.skip_text()
    reader.skip_text()
    reader.skip_bytes(10)
    reader.skip_text()
    reader.skip_bytes(17)
    reader.skip_text()
    reader.skip_bytes(2)
    reader.skip_text()
    reader.skip_text()
    _read_through_tokenizer(reader)
    _read_through_dictionary(reader, version)
    if version >= 6 and (count := reader.read_dword_as_count()):
        for _ in range(count):
            reader.skip_text()
        reader.skip_bytes(1)


def _read_through_tokenizer(reader: _UncheckedReader) -> None:
    kind = reader.read_byte()
    if kind not in _TOKENIZERS:
        raise _TokenizerError(f"a tokenizer of type {kind}")
    reader.skip_text()
    reader.skip_bytes(4)
    _skip_embedded(reader, reader.skip_text)
    reader.skip_text()
    reader.skip_bytes(_FILE_FACTS_SIZE)
    reader.skip_text()
    reader.skip_text()
    reader.skip_bytes(4)
    for _ in range(3):
        reader.skip_text()


def _read_through_dictionary(reader: _UncheckedReader, version: int) -> None:
    reader.skip_text()
    if version >= 7:
        reader.skip_text()
    _skip_embedded(reader, lambda: reader.skip_numbers(1))
    reader.skip_text()
    _skip_files(reader)
    _skip_embedded(reader, reader.skip_text)
    _skip_files(reader)
    reader.skip_bytes(6)
    reader.skip_text()


def _skip_embedded(reader: _UncheckedReader, skip: Callable[[], None]) -> None:
    """Skip the elements that are in the settings themselves, if a byte says that they are."""
    if reader.read_byte():
        for _ in range(reader.read_dword_as_count()):
            skip()


def _skip_files(reader: _UncheckedReader) -> None:
    """Skip names and facts of files."""
    for _ in range(reader.read_dword_as_count()):
        reader.skip_text()
        reader.skip_bytes(_FILE_FACTS_SIZE)


def _read_through_commit(reader: _UncheckedReader, version: int, id_size: int) -> None:
    if reader.read_number() & 0xFFFFFFFF:
        reader.skip_vector(1)
        reader.repeat_element(lambda: reader.skip_numbers(2))
        for width in (1, 1, 4, 1):
            reader.skip_vector(width)
        if 3 <= version < 8:
            reader.skip_vector(4)
        if version >= 4:
            reader.skip_vector(1)
    reader.skip_vector(id_size)


def _read_through_query(reader: _UncheckedReader) -> None:
    """Read a stored query: its filters and the nodes of their tree."""
    reader.skip_numbers(2)
    reader.skip_text()
    reader.skip_text()
    filters, nodes = reader.read_number_as_count(), reader.read_number_as_count()
    for _ in range(filters):
        reader.skip_text()
        reader.skip_numbers(10)
        values, texts = reader.read_number_as_count(), reader.read_number_as_count()
        reader.skip_numbers(values)
        for _ in range(texts):
            reader.skip_text()
    reader.skip_numbers(4 * nodes)
