"""Detect a binary log, read its FORMAT_DESCRIPTION, and choose the frames of its events.

Source: docs/spec/mysql_binlog.md#file-kinds and #format_description-and-checksums.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import pairwise
from typing import Any

from construct import Const, Construct, Struct
from msgspec.structs import replace

from binlogtool.errors import UnknownFormatError
from binlogtool.findings import Finding, make_finding
from binlogtool.format_api.format import FileHead, FormatMatch, Hints
from binlogtool.format_api.layout import CRC32, Batch, FrameLevel, InnerLevel, LogFileLayout
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.crypt.decrypt import (
    ENCRYPTED_FILE_HEADER,
    ENCRYPTED_HEADER_SIZE,
    ENCRYPTION_HEADER,
    NO_KEY_MESSAGE,
    StartEncryption,
    create_mariadb_decryptor_factory,
    create_mysql_decryptor_factory,
    parse_encryption_header,
    parse_start_encryption,
)
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import (
    KeyFileError,
    read_mariadb_key,
    read_mysql_master_key,
)
from binlogtool.formats.binlog_events.ddl.table_history import TableHistory, make_earlier_state_loader
from binlogtool.formats.binlog_events.decode import (
    BinlogFileContext,
    EventTracker,
    TableMaps,
    is_proven_despite_checksum,
    is_proven_event,
    read_prior_events,
    record_times_and_servers,
)
from binlogtool.formats.binlog_events.event_schemas import (
    ENCRYPTED_EVENT_FRAME,
    EVENTS,
    SCAN_COLUMNS,
    UNENCRYPTED_EVENTS,
    EventChecksumForm,
    make_body_constructs,
    make_event_construct,
)
from binlogtool.formats.binlog_events.rows.table_map import TableMap
from binlogtool.formats.binlog_events.wire_format import (
    CHECKSUM_SIZE,
    ENCRYPTED_MAGIC,
    END_LOG_POS_AT,
    FLAGS_AT,
    HEADER_SIZE,
    MAGIC,
    TYPE_AT,
    EventFlag,
    EventType,
    FormatDescription,
    clear_in_use_flag,
    has_valid_checksum,
    parse_format_description,
    read_event_size,
    unpack_transaction_payload,
)
from binlogtool.formats.mysql_binlog import LOG_PATTERNS
from binlogtool.formats.mysql_binlog.index_and_state_files import EMPTY_LEVEL, is_next_file
from binlogtool.limits import MIB, Limits

# --- The FORMAT_DESCRIPTION event at the beginning of a log ---

_MAX_TYPES_WITHOUT_CHECKSUMS = 29
"""Maximum number of event types in servers that write no checksums."""


def read_format_description(log_bytes: bytes, at: int) -> FormatDescription | None:
    """Read the FORMAT_DESCRIPTION event at `data[at:]`; None if there is no such event."""
    if len(log_bytes) < at + HEADER_SIZE or log_bytes[at + TYPE_AT] != EventType.FORMAT_DESCRIPTION:
        return None
    size = read_event_size(log_bytes, at)
    try:
        description = parse_format_description(log_bytes[at : at + size])
    except MalformedError:
        return None
    return description if description.size == size and description.binlog_version == 4 else None


def explain_incompatibility(description: FormatDescription) -> str | None:
    """Return why the events after this FORMAT_DESCRIPTION cannot be read; None if they can."""
    if description.header_length != HEADER_SIZE:
        return f"its events have headers of {description.header_length} bytes; only {HEADER_SIZE} is read"
    if "a_drop" in description.server_version:
        return f"{description.server_version} uses its own numbers for event types"
    return None


def get_checksum_form(description: FormatDescription) -> EventChecksumForm:
    """Return the format of the events after a FORMAT_DESCRIPTION."""
    if description.checksum_alg is None:
        return EventChecksumForm.BARE
    return EventChecksumForm.CRC if description.has_checksums else EventChecksumForm.PLAIN


def is_description_checksum_valid(log_bytes: bytes, at: int, description: FormatDescription) -> bool:
    """Return whether the checksum of the FORMAT_DESCRIPTION is correct or absent."""
    event = log_bytes[at : at + description.size]
    return description.checksum_alg is None or has_valid_checksum(clear_in_use_flag(event))


def infer_checksum_form_from_next_event(
    log_bytes: bytes, at: int, description: FormatDescription
) -> EventChecksumForm | None:
    """Infer the event format from the event after a damaged FORMAT_DESCRIPTION; None if its checksum is no proof."""
    start = at + description.size
    size = read_event_size(log_bytes, start)
    event = log_bytes[start : start + size]
    if size < HEADER_SIZE + CHECKSUM_SIZE or len(event) != size:
        return None
    return EventChecksumForm.CRC if has_valid_checksum(event) else None


def has_contradicting_version(description: FormatDescription) -> bool:
    """Return whether the version is that of a server without checksums while the rest of the event is from a newer one.

    The contents of such an event cannot be trusted.
    """
    return description.checksum_alg is None and len(description.post_header_len) > _MAX_TYPES_WITHOUT_CHECKSUMS


# --- Frame levels of a log ---

DEFAULT_MAX_EVENT = 256 * MIB
"""Default size limit of one event in bytes; servers write up to 1 GiB."""
_KNOWN_TYPE = rb".{4}[\x01-\x3f\xa0-\xbf]"
"""Known event types: MySQL counts from 1, MariaDB's own start at 160. Resync also accepts types of newer servers."""
_PLAUSIBLE_SIZE = rb".{4}.{3}[\x00-\x40].{4}.[\x00-\x03\x40-\x43\x80-\x83\xc0-\xc3]"
"""Pattern for a common header: size below 1 GiB, known flags (docs/spec/mysql_binlog.md#resynchronization)."""


def _header_pattern(smallest: int) -> bytes:
    """Return the pattern of a common header whose size is at least that of the smallest event."""
    return _KNOWN_TYPE + rb"(?!.{4}[\x00-" + re.escape(bytes([smallest - 1])) + rb"]\x00{3})" + _PLAUSIBLE_SIZE


def _compute_claimed_offset(event_head: bytes) -> int | None:
    """Return the offset that an event claims to have: end_log_pos minus its size; None for artificial events."""
    size, end = read_event_size(event_head), int.from_bytes(event_head[END_LOG_POS_AT:FLAGS_AT], "little")
    return end - size if len(event_head) >= HEADER_SIZE and end >= size > 0 else None


@cache
def get_frame_level(checksum_form: EventChecksumForm) -> FrameLevel:
    """Return the frame level of an event format; all files of this format share it."""
    return FrameLevel(
        name="event",
        schema=EVENTS[checksum_form],
        columns=SCAN_COLUMNS,
        sync=_header_pattern(HEADER_SIZE + 4 * (checksum_form is EventChecksumForm.CRC)),
        min_size=HEADER_SIZE,
        max_size=DEFAULT_MAX_EVENT,
        length_field="event_size",
        prove=is_proven_despite_checksum if checksum_form is EventChecksumForm.CRC else is_proven_event,
        observe=None if checksum_form is EventChecksumForm.CRC else record_times_and_servers,
        checksum=CRC32,
        claimed_offset=_compute_claimed_offset,
        stored="crc32",
        covered=("offset", "body_end"),
        trailing=0 if checksum_form is EventChecksumForm.CRC else None,
        next_level=_switch_frame_level,
        annotated_schema=partial(_make_annotated_schema, checksum_form),
        select_annotated=_select_annotated_map,
    )


def _make_annotated_schema(form: EventChecksumForm, context: BinlogFileContext) -> Construct:
    """Return the schema of the events with the table maps of this file."""
    description, tracker = context.description, context.tracker

    def find_map(table_id: int) -> TableMap | None:
        return tracker.maps.by_id.get(table_id) if tracker.annotated_maps is None else tracker.annotated_maps[0]

    return make_event_construct(form, make_body_constructs(find_map, description.table_id_size, description.is_mariadb))


def _select_annotated_map(context: BinlogFileContext, batch: Batch | None, frame: int) -> None:
    """Set the table map for the annotated parse of an event to the one that was valid there."""
    context.tracker.annotated_maps = None if batch is None else (context.tracker.track_batch(batch).maps[frame],)


ENCRYPTED_LEVEL = FrameLevel(
    name="event", schema=ENCRYPTED_EVENT_FRAME, columns=SCAN_COLUMNS, sync=None, min_size=HEADER_SIZE,
    max_size=DEFAULT_MAX_EVENT, checksum=CRC32,
    stored="crc32", covered=("offset", "body_end"),
)  # fmt: skip


def get_level_before_encryption(checksum_form: EventChecksumForm) -> FrameLevel:
    """Return the level of the events before the encrypted ones; all later events are encrypted."""
    return replace(ENCRYPTED_LEVEL, schema=UNENCRYPTED_EVENTS[checksum_form], next_level=_switch_frame_level)


def _switch_frame_level(description_event: bytes, context: BinlogFileContext) -> FrameLevel | None:
    """Make a FORMAT_DESCRIPTION inside a relay log the current one; return the frame level for later events, None if
    it is not valid.
    """
    if context.encrypted_without_key:
        return ENCRYPTED_LEVEL
    description = read_format_description(description_event, 0)
    if (
        description is None
        or explain_incompatibility(description)
        or not is_description_checksum_valid(description_event, 0, description)
        or has_contradicting_version(description)
    ):
        return None
    context.description = description
    context.tracker.maps.is_mariadb = description.is_mariadb
    return get_frame_level(get_checksum_form(description))


PAYLOAD_LEVEL = InnerLevel(
    frame=FrameLevel(
        name="event",
        schema=EVENTS[EventChecksumForm.BARE],
        columns=SCAN_COLUMNS,
        sync=None,
        min_size=HEADER_SIZE,
        max_size=DEFAULT_MAX_EVENT,
    ),
    selector="type_code",
    holders=frozenset({EventType.TRANSACTION_PAYLOAD.value}),
    start="body_start",
    end="body_end",
    unpack=unpack_transaction_payload,
)


# --- Detection of a binary log, and its layout ---

FILE_HEADER = Struct("magic" / Const(MAGIC))
FIRST_EVENT_AT = len(MAGIC)
_HEADER_V1, _START_V1 = 13, 13 + 56
"""Size of a header and of a START event in logs of MySQL 3.23."""
_MIN_START_SIZE = _START_V1
ENCRYPTED_FIRST_EVENT_AT = ENCRYPTED_HEADER_SIZE + FIRST_EVENT_AT


def detect_binary_log(head: FileHead) -> FormatMatch:
    """Detect a log by its magic, or by the FORMAT_DESCRIPTION after a damaged magic."""
    if head.data.startswith(MAGIC):
        return FormatMatch(100, "it starts with fe 62 69 6e")
    if head.data.startswith(ENCRYPTED_MAGIC):
        return FormatMatch(100, "it starts with fd 62 69 6e (encrypted)")
    if read_format_description(head.data, FIRST_EVENT_AT) is not None:
        return FormatMatch(90, "a FORMAT_DESCRIPTION event is at offset 4")
    if head.data[:4] and MAGIC.startswith(head.data[:4]) and any(fnmatchcase(head.name, p) for p in LOG_PATTERNS):
        return FormatMatch(30, "the name of a log, and the beginning of its magic")
    return FormatMatch(0, "neither magic nor FORMAT_DESCRIPTION")


def create_log_layout(head: FileHead, limits: Limits) -> LogFileLayout:
    """Return the layout of a log: server, event format, and what is wrong with the beginning of the file.

    Raises:
        KeyFileError: the keys that the user named do not decrypt this log.
    """
    if head.data.startswith(ENCRYPTED_MAGIC):
        # The layout of an encrypted MySQL file: a header, and the plain file after it
        try:
            header = parse_encryption_header(head.data)
        except MalformedError as error:
            error_finding = make_finding(
                error.finding_id, 0, min(len(head.data), ENCRYPTED_HEADER_SIZE), str(error.args[0])
            )
            return replace(
                _create_unreadable_layout(head, ENCRYPTED_FIRST_EVENT_AT, [error_finding]), header=ENCRYPTION_HEADER
            )
        if head.hints.keyfile is None:
            error_finding = make_finding("encrypted", ENCRYPTED_HEADER_SIZE, 0, NO_KEY_MESSAGE, key_id=header.key_id)
            unreadable = _create_unreadable_layout(head, ENCRYPTED_HEADER_SIZE, [error_finding])
            size = min(ENCRYPTED_HEADER_SIZE, len(head.data))
            return replace(
                unreadable, frames_at=size, header=ENCRYPTION_HEADER, variant="encrypted", encrypted_without_key=True
            )
        with _naming_key_file(head.hints):
            master_key = read_mysql_master_key(head.hints.keyfile, header.key_id)
        decryptor = create_mysql_decryptor_factory(head.data, master_key)
        plain = bytearray(head.data)
        decryptor(_read_nothing)(0, memoryview(plain))
        found_layout = create_plain_log_layout(replace(head, data=bytes(plain)), ENCRYPTED_FIRST_EVENT_AT)
        variant = f"{found_layout.variant}, encrypted"
        return replace(found_layout, header=ENCRYPTED_FILE_HEADER, decrypt=decryptor, variant=variant)
    return create_plain_log_layout(head, FIRST_EVENT_AT)


@contextmanager
def _naming_key_file(hints: Hints) -> Iterator[None]:
    """Name the key file in the errors about its content."""
    try:
        yield
    except KeyFileError as error:
        if hints.keyfile_name is None:
            raise
        raise KeyFileError(f"{hints.keyfile_name}: {error}") from error


def _read_nothing(offset: int, size: int) -> bytes:
    """Return no bytes, for a head that needs no further reads."""
    return b""


def create_plain_log_layout(head: FileHead, first_event_at: int) -> LogFileLayout:
    """Return the layout of a file whose events begin at `first_event_at` and whose plain bytes are in `head`."""
    findings: list[Finding] = []
    magic = head.data[first_event_at - FIRST_EVENT_AT : first_event_at]
    if magic != MAGIC:
        message = f"the file starts with {magic.hex(' ')}, expected {MAGIC.hex(' ')}"
        message = message if head.data else "the file is empty"
        at, actual = first_event_at - FIRST_EVENT_AT, magic.hex()
        facts: dict[str, Any] = {"expected": MAGIC.hex(), "actual": actual} if head.data else {}
        findings.append(make_finding("bad-magic", at, len(magic), message, **facts))
    description = read_format_description(head.data, first_event_at)
    if description is None and not findings:
        _reject_old_version(head, first_event_at)
    if description is None:
        findings += [] if findings else [_make_missing_description_finding(head, first_event_at)]
        return _create_unreadable_layout(head, first_event_at, findings)
    if reason := explain_incompatibility(description):
        version = description.server_version
        findings.append(
            make_finding("unsupported-version", first_event_at, description.size, reason, server_version=version)
        )
        return replace(_create_unreadable_layout(head, first_event_at, findings), variant=version)
    form = get_checksum_form(description)
    if not is_description_checksum_valid(head.data, first_event_at, description):
        form = infer_checksum_form_from_next_event(head.data, first_event_at, description) or form
        if form is EventChecksumForm.PLAIN:
            findings.append(_make_description_checksum_finding(first_event_at, description))
    elif form is EventChecksumForm.PLAIN and infer_checksum_form_from_next_event(
        head.data, first_event_at, description
    ):
        findings.append(_make_undeclared_checksums_finding(first_event_at, description))
    if form is EventChecksumForm.BARE and has_contradicting_version(description):
        findings.append(_make_damaged_version_finding(first_event_at, description))
    context = _create_file_context(head, description, first_event_at)
    start_encryption = _find_start_encryption(head.data, first_event_at + description.size)
    decryptor = None
    if start_encryption is not None and head.hints.keyfile is not None:
        with _naming_key_file(head.hints):
            key = read_mariadb_key(head.hints.keyfile, head.hints.keyfile_secret)
        decryptor = create_mariadb_decryptor_factory(start_encryption, key, head.data)
    elif start_encryption is not None:
        context.encrypted_without_key = True
        boundaries = (
            (first_event_at, first_event_at + description.size, start_encryption.end)
            if form is EventChecksumForm.CRC
            else ()
        )
        findings += _verify_plain_events(head.data, boundaries)
        findings.append(
            make_finding("encrypted", start_encryption.end, 0, NO_KEY_MESSAGE, key_version=start_encryption.key_version)
        )
    return LogFileLayout(
        variant=sys.intern(_describe_variant(description, form, context.is_relay_log)),
        frames_at=first_event_at,
        frame=get_level_before_encryption(form) if context.encrypted_without_key else get_frame_level(form),
        header=FILE_HEADER,
        context=context,
        findings=tuple(findings),
        inner=None if context.encrypted_without_key else PAYLOAD_LEVEL,
        decrypt=decryptor,
        encrypted_without_key=context.encrypted_without_key,
    )


def _reject_old_version(head: FileHead, start: int) -> None:
    """Reject logs of MySQL 3.23 to 4.1 by their first event, START: its version is 1 or 3, and its header size matches.

    Raises:
        UnknownFormatError: it is such a log.
    """
    data = head.data[start:]
    if len(data) < _MIN_START_SIZE or data[4] != EventType.START_V3:
        return
    header = _HEADER_V1 if read_event_size(data) == _START_V1 else HEADER_SIZE
    version = int.from_bytes(data[header : header + 2], "little")
    server = data[header + 2 : header + 52].split(b"\0")[0].decode("latin-1")
    if 1 <= version <= 3 and server[:2] in ("3.", "4."):
        text = f"{head.name}: a log of MySQL {server} (binlog version {version}); only version 4 (5.0 on) is read"
        raise UnknownFormatError(text)


def _find_start_encryption(log_bytes: bytes, at: int) -> StartEncryption | None:
    """Return the START_ENCRYPTION event after the FORMAT_DESCRIPTION; None if the file is not encrypted."""
    if len(log_bytes) < at + HEADER_SIZE or log_bytes[at + TYPE_AT] != EventType.START_ENCRYPTION:
        return None
    try:
        return parse_start_encryption(log_bytes[at:], at)
    except MalformedError:
        return None


def _create_unreadable_layout(head: FileHead, start: int, findings: list[Finding]) -> LogFileLayout:
    """Return the layout of a file whose events cannot be read."""
    description = FormatDescription(4, "", 0, HEADER_SIZE, b"", None)
    context = _create_file_context(head, description, start)
    return LogFileLayout(
        "unknown",
        0,
        get_frame_level(EventChecksumForm.CRC),
        FILE_HEADER,
        context=context,
        findings=tuple(findings),
        readable=False,
    )


def _make_missing_description_finding(head: FileHead, start: int) -> Finding:
    """Return the finding about a missing FORMAT_DESCRIPTION."""
    size = len(head.data) - start
    if size < HEADER_SIZE + 57 and head.is_whole:
        return make_finding("bad-header", start, max(size, 0), "the file ends inside its FORMAT_DESCRIPTION event")
    return make_finding(
        "bad-header", start, min(size, HEADER_SIZE), "the first event is not a FORMAT_DESCRIPTION of version 4"
    )


def _make_damaged_version_finding(start: int, description: FormatDescription) -> Finding:
    """Return the finding about a damaged server version."""
    text = (
        f"{description.server_version!r} is the version of a server without checksums, but it lists "
        f"{len(description.post_header_len)} types of events: the version is damaged"
    )
    return make_finding("bad-header", start, description.size, text, record=0)


def _verify_plain_events(data: bytes, boundaries: tuple[int, ...]) -> Iterator[Finding]:
    """Yield findings about the readable events before the encrypted ones, for a file without a key."""
    for record, (start, end) in enumerate(pairwise(boundaries)):
        event = clear_in_use_flag(data[start:end]) if not record else data[start:end]
        if not has_valid_checksum(event):
            text = "the checksum of an event before the encrypted ones is wrong"
            yield make_finding("checksum-mismatch", start, end - start, text, record=record)


def _make_description_checksum_finding(start: int, description: FormatDescription) -> Finding:
    """Return the finding about a FORMAT_DESCRIPTION with a wrong checksum in a file without other checksums."""
    text = "the checksum of FORMAT_DESCRIPTION is wrong; with checksum_alg 0 it is the only checksum of the file"
    return make_finding("checksum-mismatch", start, description.size, text, record=0)


UNDECLARED_CHECKSUMS = "undeclared-checksums"
"""Diagnosis of a log whose FORMAT_DESCRIPTION says that its events have no checksums, but they have them."""


def _make_undeclared_checksums_finding(start: int, description: FormatDescription) -> Finding:
    """Return the finding about events with checksums that FORMAT_DESCRIPTION does not declare."""
    text = (
        "FORMAT_DESCRIPTION declares no checksums (checksum_alg 0), but the events end with checksums: servers read "
        "each checksum as content of its event, and cannot apply its rows"
    )
    at = start + description.size - CHECKSUM_SIZE - 1
    return make_finding("bad-header", at, 1, text, record=0, diagnosis=UNDECLARED_CHECKSUMS, expected=1, actual=0)


def _describe_variant(description: FormatDescription, form: EventChecksumForm, is_relay: bool) -> str:
    """Return the variant as text: kind, version, server, checksums."""
    checksums = {
        EventChecksumForm.BARE: "without checksums",
        EventChecksumForm.PLAIN: "checksum NONE",
        EventChecksumForm.CRC: "CRC32",
    }[form]
    kind = "relay log" if is_relay else "binlog"
    return f"{kind} v{description.binlog_version}, {description.server_version}, {checksums}"


def _create_file_context(head: FileHead, description: FormatDescription, start: int) -> BinlogFileContext:
    """Return the context of a file, continued from the preceding file of the same log."""
    is_relay = bool(description.flags & EventFlag.RELAY_LOG)
    load_earlier = make_earlier_state_loader(head, "mysql-binlog", is_next_file)
    history = (
        None if head.hints.as_stored else TableHistory(head.hints.schema, load_earlier, description.server_version)
    )
    maps = TableMaps(description.table_id_size, description.is_mariadb, history)
    previous_name, previous_tracker, end = head.shared.get("mysql-binlog.tracker", (None, None, 0))
    is_next = previous_name is not None and is_next_file(previous_name, head.name)
    tracker = EventTracker(
        previous_tracker if is_relay and is_next else None,
        maps,
        preceding_file=(previous_tracker, end) if is_next else None,
    )
    head.shared["mysql-binlog.tracker"] = head.name, tracker, head.size or 0
    prior_events = read_prior_events(head.data, start)
    return BinlogFileContext(
        description, tracker, is_relay, start, name=head.name, hints=head.hints, prior_events=prior_events
    )


# --- Layouts with native code ---


def iter_compiled_layouts() -> Iterator[LogFileLayout]:
    """Yield one layout for each event format, plain or before encrypted events, and for text files."""
    description = FormatDescription(4, "", 0, HEADER_SIZE, b"", None)
    encrypted_context = BinlogFileContext(description, EventTracker(), encrypted_without_key=True)
    for schema in EVENTS.values():
        level = replace(ENCRYPTED_LEVEL, schema=schema)
        yield LogFileLayout("", 0, level, context=BinlogFileContext(description, EventTracker()), inner=PAYLOAD_LEVEL)
    yield from (
        LogFileLayout("", 0, replace(ENCRYPTED_LEVEL, schema=schema), context=encrypted_context)
        for schema in UNENCRYPTED_EVENTS.values()
    )
    yield LogFileLayout("", 0, ENCRYPTED_LEVEL, context=encrypted_context)
    yield LogFileLayout("", 0, EMPTY_LEVEL, context=encrypted_context)
