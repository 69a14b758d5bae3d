"""Read encrypted logs as plain bytes at the same offsets.

An event can only be decrypted if its start is known (`crypt.keys_and_ciphers`), so the chain of readable sizes is
followed from the first encrypted event on. Every boundary is proven by the decrypted header after it. Bytes that belong
to no event stay unchanged. Memory is bounded: the events around the last position read, and a sparse list of
boundaries.

MySQL: a header of 512 bytes, then the whole plain file under AES-256-CTR. Its magic is at 512, its first event at 516;
positions in events (end_log_pos) refer to the plain file and are lower by 512. MariaDB: FORMAT_DESCRIPTION and
START_ENCRYPTION are plain; each event after them is encrypted by itself, and only its size is readable.
Sources: docs/spec/mysql_binlog.md#encryption; MySQL `sql/rpl_log_encryption.h`, `sql/stream_cipher.cc`; MariaDB
`Start_encryption_log_event`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
from construct import (
    Bytes,
    Check,
    Const,
    Construct,
    ConstructError,
    Enum,
    Error,
    Int8ul,
    Int32ul,
    Pass,
    RepeatUntil,
    Struct,
    Switch,
    Tell,
    this,
)

from binlogtool.format_api.layout import BufferDecryptor, RangeReader
from binlogtool.format_api.schema_fields import MalformedError
from binlogtool.formats.binlog_events.crypt.keys_and_ciphers import (
    BLOCK_SIZE,
    FIRST_BLOCK_END,
    MASTER_KEY_SIZE,
    CbcEventCipher,
    CtrEventCipher,
    EventCipher,
    KeyFileError,
    decrypt_aes_cbc,
    decrypt_common_header,
    from_encryption_order,
    to_encryption_order,
)
from binlogtool.formats.binlog_events.wire_format import (
    ENCRYPTED_MAGIC,
    END_LOG_POS_AT,
    EVENT_TYPE_NAMES,
    FLAGS_AT,
    HEADER_SIZE,
    KNOWN_FLAGS,
    MAGIC,
    MAX_EVENT_SIZE,
    PACKED_HEADER,
    TYPE_AT,
    EventFlag,
    EventType,
    read_event_size,
)

# --- Random-access decryption of MariaDB's encrypted events ---

_CHUNK_SIZE = 1 << 18
_BOUNDARY_STRIDE = 1 << 16
_MAX_BOUNDARIES = 1 << 13
_SEARCH_SIZES = (1 << 10, 1 << 16)
"""Number of bytes that one step of a search examines: at first, and at most."""
_MIN_SEARCH_BUDGET = 1 << 28
_SEARCH_BUDGET_PER_BYTE = 16
_MAX_CACHED = 1 << 14
_MAX_SERVER_IDS = 256
_TEN_YEARS = 10 * 366 * 86400
_U32 = (1 << 32) - 1
_LOW_24_BITS = (1 << 24) - 1
_UNKNOWN_FLAGS_HIGH = 0xFF & ~(KNOWN_FLAGS >> 8)
_ZERO_POSITION = bytes(4)
_pack_uint32 = struct.Struct("<I").pack
_unpack_size = struct.Struct("<9xI").unpack_from


class EncryptedEventStart(NamedTuple):
    """Start of an event. shift: bytes by which the event has moved from its original offset."""

    offset: int
    shift: int


NOWHERE = EncryptedEventStart(1 << 62, 0)


class DecryptionAnchor(NamedTuple):
    """Start of an event, and the ids of the servers with earlier events."""

    offset: int
    shift: int
    server_ids: list[int]


class DecryptedRange(msgspec.Struct, frozen=True):
    """Consecutive events in `[start, end)`; the bytes from there to `following` belong to no event.

    `data`: their plain bytes; None for a single event that is decrypted in parts.
    """

    start: EncryptedEventStart
    end: int
    following: EncryptedEventStart
    data: bytes | None = None


class EventStartIndex:
    """Some of the event starts, in order, spread evenly over the part that was read."""

    def __init__(self, first: EncryptedEventStart) -> None:
        self._starts = [first]
        self._stride = _BOUNDARY_STRIDE

    def add_unless_nearby(self, start: EncryptedEventStart) -> None:
        """Add an event start, unless a nearby one is already known."""
        if start.offset < self._starts[-1].offset + self._stride:
            return
        self._starts.append(start)
        if len(self._starts) > _MAX_BOUNDARIES:
            del self._starts[1::2]
            self._stride *= 2

    def find_before(self, offset: int) -> EncryptedEventStart:
        """Return the last known event start at or before this offset."""
        return self._starts[bisect_right(self._starts, EncryptedEventStart(offset, NOWHERE.offset)) - 1]


class HeaderEvidence:
    """Known facts that distinguish the headers of a file's events from noise.

    `server_ids`: server ids of the readable events. `since`: time of these events in seconds. `is_relay`: it is a relay
    log, where end_log_pos is that of the source.
    """

    def __init__(self, server_ids: set[int], since: int, relay: bool) -> None:
        self.server_ids = server_ids
        self.is_relay = relay
        self._since = since
        self.known_prefixes: set[bytes] = set()
        """Bytes of type and server id, as stored in a header."""

    def remember_type_and_server(self, header: bytes) -> None:
        """Record type and server id of an event."""
        if len(self.server_ids) < _MAX_SERVER_IDS:
            self.server_ids.add(int.from_bytes(header[5:9], "little"))
        if len(self.known_prefixes) < _MAX_CACHED:
            self.known_prefixes.add(header[4:9])

    def is_certain_header(self, header: bytes, written_offset: int) -> bool:
        """Return whether this is, beyond reasonable doubt, the header of an event that was written at
        `written_offset`.
        """
        _, type_, server, size, end_log_pos, flags = PACKED_HEADER.unpack(header)
        if flags & ~KNOWN_FLAGS:
            return False
        if end_log_pos == (written_offset + size) & _U32 and not self.is_relay:
            return True
        return (end_log_pos == 0 or server in self.server_ids) and _is_event_type(type_, flags)

    def has_matching_position(self, header: bytes, written_offset: int) -> bool:
        """Return whether the position in the header agrees with the offset, or is not set."""
        return self.is_relay or header[13:17] in (
            _ZERO_POSITION,
            _pack_uint32((written_offset + read_event_size(header)) & _U32),
        )

    def is_plausible_relay_header(self, header: bytes) -> bool:
        """Return whether this may be the header of a server that was not seen before, in a relay log."""
        time, type_, _, size, _, flags = PACKED_HEADER.unpack(header)
        if flags & ~KNOWN_FLAGS or not HEADER_SIZE <= size <= MAX_EVENT_SIZE or not _is_event_type(type_, 0):
            return False
        return time in (0, min(max(time, self._since - _TEN_YEARS), self._since + _TEN_YEARS))


def _is_event_type(type_code: int, flags: int) -> bool:
    """Return whether this is a known event type, or an ignorable one."""
    return (type_code in EVENT_TYPE_NAMES and type_code != 0) or bool(flags & EventFlag.IGNORABLE)


class EventDecryptor:
    """Decryptor of one file (`BufferDecryptor`), called with an offset and the bytes at that offset."""

    def __init__(self, sealing: EventCipher, first: int, known: HeaderEvidence, read: RangeReader) -> None:
        self._cipher = sealing
        self._evidence = known
        self._read_range = read
        self._first = first
        self._event_starts = EventStartIndex(EncryptedEventStart(first, 0))
        self._range: DecryptedRange | None = None
        self._partial_event: tuple[int, bytes] = (0, b"")
        self._search_results: dict[int, EncryptedEventStart] = {}
        self._bytes_searched = 0

    def __call__(self, offset: int, view: memoryview) -> None:
        """Decrypt the encrypted bytes in `view`, which starts at file offset `offset`, in place."""
        position, end = max(offset, self._first), offset + len(view)
        while position < end:
            event_range = self._find_range_with_offset(position)
            if position >= event_range.end:
                position = event_range.following.offset
                continue
            data_start, data = self._plain_bytes_around(event_range, position)
            stop = min(end, data_start + len(data))
            if stop <= position:  # an event that the file does not contain completely
                return
            view[position - offset : stop - offset] = data[position - data_start : stop - data_start]
            position = stop

    def get_anchor(self, offset: int) -> DecryptionAnchor:
        """Return the state that a reader starting at this offset needs; everything before must have been read."""
        return DecryptionAnchor(*self._event_starts.find_before(offset), sorted(self._evidence.server_ids))

    def start_after_anchor(self, anchor: DecryptionAnchor) -> None:
        """Start reading after an anchor; earlier events are not read."""
        self._event_starts.add_unless_nearby(EncryptedEventStart(anchor.offset, anchor.shift))
        self._evidence.server_ids.update(anchor.server_ids)

    # -- events --------------------------------------------------------------------------------------------------

    def _find_range_with_offset(self, position: int) -> DecryptedRange:
        """Return the range that contains this offset: events, or the gap after them."""
        event_range = self._range
        if event_range is None or not event_range.start.offset <= position < event_range.following.offset:
            start = self._event_starts.find_before(position)
            if event_range is not None and start.offset <= event_range.following.offset <= position:
                start = event_range.following
            event_range = self._decrypt_range(start)
            while position >= event_range.following.offset:
                event_range = self._decrypt_range(event_range.following)
            self._range = event_range
        return event_range

    def _decrypt_range(self, start: EncryptedEventStart) -> DecryptedRange:
        """Return the range of events that begins at an event start."""
        self._event_starts.add_unless_nearby(start)
        raw = self._read_range(start.offset, _CHUNK_SIZE + FIRST_BLOCK_END)
        boundaries = _list_complete_event_boundaries(raw, start.offset, len(raw) < _CHUNK_SIZE + FIRST_BLOCK_END)
        if len(boundaries) < 2:
            return self._find_range_of_single_event(start)
        plain = self._cipher.decrypt_events(raw, start.offset, boundaries, start.shift)
        valid_count = self._count_valid_events(plain, boundaries, start.shift)
        following = self._get_event_start_at(boundaries[valid_count], start.shift)
        if valid_count == 0:
            return self._resume_at_next_event(start, following)
        if following is not None:
            return DecryptedRange(
                start, boundaries[valid_count], following, plain[: boundaries[valid_count] - start.offset]
            )
        following = self._find_next_event_start(boundaries[valid_count - 1] + FIRST_BLOCK_END, start.shift)
        if following.offset < boundaries[valid_count]:  # the last event's size is wrong
            boundaries = [*boundaries[:valid_count], following.offset]
            plain = self._cipher.decrypt_events(raw, start.offset, boundaries, start.shift)
        return DecryptedRange(
            start, boundaries[valid_count], following, plain[: boundaries[valid_count] - start.offset]
        )

    def _count_valid_events(self, plain: bytes, boundaries: list[int], shift: int) -> int:
        """Return how many consecutive events have a header that matches their offset."""
        base, prefixes, is_relay = boundaries[0], self._evidence.known_prefixes, self._evidence.is_relay
        for count, (low, high) in enumerate(pairwise(boundaries)):
            i = low - base
            if (
                plain[i + 4 : i + 9] in prefixes
                and not plain[i + 18] & _UNKNOWN_FLAGS_HIGH
                and (is_relay or plain[i + 13 : i + 17] in (_ZERO_POSITION, _pack_uint32((high - shift) & _U32)))
            ):
                continue
            if self._get_event_start_at(low, shift) != (low, shift):
                return count
        return len(boundaries) - 1

    def _resume_at_next_event(
        self, start: EncryptedEventStart, found_start: EncryptedEventStart | None
    ) -> DecryptedRange:
        """Return the range from the moved event found at the offset, else an empty range up to the next event of a
        known server.
        """
        if found_start is not None and found_start != start:
            return self._decrypt_range(found_start)
        return DecryptedRange(start, start.offset, self._find_next_event_start(start.offset + 1, start.shift))

    def _find_range_of_single_event(self, start: EncryptedEventStart) -> DecryptedRange:
        """Return the range of one event that is too long to decrypt at once, too short or incomplete; or no event."""
        found_start = self._get_event_start_at(start.offset, start.shift)
        if found_start != start:
            return self._resume_at_next_event(start, found_start)
        end = start.offset + read_event_size(self._read_range(start.offset, FIRST_BLOCK_END))
        if end == start.offset:  # end of file
            return DecryptedRange(start, end, NOWHERE)
        following = self._get_event_start_at(end, start.shift)
        if following is None:
            following = self._find_next_event_start(start.offset + FIRST_BLOCK_END, start.shift)
            end = min(end, following.offset)
        return DecryptedRange(start, end, following)

    def _plain_bytes_around(self, event_range: DecryptedRange, position: int) -> tuple[int, bytes]:
        """Return plain bytes of a range around a position, and the offset at which they start."""
        if event_range.data is not None:
            return event_range.start.offset, event_range.data
        data_start, data = self._partial_event
        if not data_start <= position < data_start + len(data):
            data_start, data = self._partial_event = self._decrypt_long_event_part(event_range, position)
        return data_start, data

    def _decrypt_long_event_part(self, event_range: DecryptedRange, position: int) -> tuple[int, bytes]:
        """Return the part of one long event that contains a position, and the offset of this part."""
        start, shift = event_range.start
        part_number = max(0, position - start - 4) // _CHUNK_SIZE
        stream = start + 4 + part_number * _CHUNK_SIZE
        stop = min(event_range.end, stream + _CHUNK_SIZE)
        part_start = stream if part_number else start
        raw = self._read_range(
            part_start - BLOCK_SIZE if part_number else part_start,
            stop - part_start + (BLOCK_SIZE if part_number else 0),
        )
        before, raw = (raw[:BLOCK_SIZE], raw[BLOCK_SIZE:]) if part_number else (b"", raw)
        data = raw if part_number else to_encryption_order(raw)
        whole_size = len(data) if part_start + len(raw) == event_range.end else len(data) - len(data) % BLOCK_SIZE
        plain = (
            self._cipher.decrypt_stream_part(
                start - shift, part_number * _CHUNK_SIZE // BLOCK_SIZE, before, data[:whole_size]
            )
            + data[whole_size:]
        )
        return part_start, plain if part_number else from_encryption_order(plain, raw[9:13])

    # -- borders -------------------------------------------------------------------------------------------------

    def _get_event_start_at(self, offset: int, position_shift: int) -> EncryptedEventStart | None:
        """Return the event start (maybe with another shift) or end of file at this offset; None if it is neither."""
        raw = self._read_range(offset, FIRST_BLOCK_END)
        if not raw:
            return EncryptedEventStart(offset, position_shift) if self._read_range(offset - 1, 1) else None
        header = decrypt_common_header(self._cipher, raw, offset - position_shift)
        if header is None or not HEADER_SIZE <= read_event_size(raw) <= MAX_EVENT_SIZE:
            return None
        evidence = self._evidence
        is_certain = evidence.is_certain_header(header, offset - position_shift)
        if not is_certain or not evidence.has_matching_position(header, offset - position_shift):
            moved = self._detect_moved_event(raw, header, offset)
            if moved is not None:
                return moved
        if is_certain or (
            evidence.is_relay
            and evidence.is_plausible_relay_header(header)
            and self._is_plausible_event_start(offset + read_event_size(raw), position_shift)
        ):
            evidence.remember_type_and_server(header)
            return EncryptedEventStart(offset, position_shift)
        return None

    def _is_plausible_event_start(self, offset: int, shift: int) -> bool:
        """Return whether an event or the end of the file may be at this offset."""
        raw = self._read_range(offset, FIRST_BLOCK_END)
        if not raw:
            return bool(self._read_range(offset - 1, 1))
        header = decrypt_common_header(self._cipher, raw, offset - shift)
        return header is not None and self._evidence.is_plausible_relay_header(header)

    def _detect_moved_event(self, raw: bytes, header: bytes, offset: int) -> EncryptedEventStart | None:
        """Return the start of an event that was written elsewhere: its header has the low three bytes of its position.

        A wrong offset in the IV only affects the bytes after them in the first block.
        """
        evidence = self._evidence
        if (
            evidence.is_relay
            or not self._cipher.tolerates_wrong_offset
            or int.from_bytes(header[5:9], "little") not in evidence.server_ids
        ):
            return None
        written = int.from_bytes(header[13:16], "little") - read_event_size(raw)
        shift = (offset - written) & _LOW_24_BITS
        shift -= (_LOW_24_BITS + 1) * (shift > _LOW_24_BITS >> 1)
        corrected_header = decrypt_common_header(self._cipher, raw, offset - shift)
        if (
            corrected_header is None
            or corrected_header[13:17] == _ZERO_POSITION
            or not evidence.has_matching_position(corrected_header, offset - shift)
        ):
            return None
        return (
            EncryptedEventStart(offset, shift) if evidence.is_certain_header(corrected_header, offset - shift) else None
        )

    def _find_next_event_start(self, start: int, shift: int) -> EncryptedEventStart:
        """Return the next event of a known server at or after `start`; NOWHERE if there is no such event."""
        if start not in self._search_results:
            if len(self._search_results) >= _MAX_CACHED:
                self._search_results.clear()
            self._search_results[start] = self._search_next_event_start(start, shift)
        return self._search_results[start]

    def _search_next_event_start(self, position: int, shift: int) -> EncryptedEventStart:
        """Search for the next event."""
        pattern = self._build_masked_server_id_pattern()
        step, max_step = _SEARCH_SIZES
        while self._bytes_searched < _MIN_SEARCH_BUDGET + _SEARCH_BUDGET_PER_BYTE * position:
            raw = self._read_range(position, step + FIRST_BLOCK_END)
            count = min(step, len(raw) - HEADER_SIZE)
            if count <= 0:
                break
            self._bytes_searched += count
            for candidate in self._list_candidate_event_offsets(
                raw.ljust(count + FIRST_BLOCK_END, b"\0"), position, count, pattern
            ):
                end = candidate + read_event_size(raw[candidate - position : candidate - position + FIRST_BLOCK_END])
                event_start = self._get_event_start_at(candidate, shift) if self._read_range(end - 1, 1) else None
                if event_start is not None:
                    return event_start
            position, step = position + count, min(2 * step, max_step)
        return NOWHERE

    def _build_masked_server_id_pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of the known server ids as they appear in `EventCipher.decrypt_possible_first_blocks`."""
        mask = int.from_bytes(self._cipher.server_id_mask, "little")
        return re.compile(b"|".join(re.escape(_pack_uint32(one ^ mask)) for one in sorted(self._evidence.server_ids)))

    def _list_candidate_event_offsets(
        self, raw: bytes, base_offset: int, count: int, pattern: re.Pattern[bytes]
    ) -> list[int]:
        """Return the offsets at which an event of a known server could start."""
        if not raw.strip(b"\0"):
            return []
        blocks = self._cipher.decrypt_possible_first_blocks(raw, base_offset, count)
        offsets, match = [], pattern.search(blocks)
        while match is not None:
            if match.start() % BLOCK_SIZE == 1:
                offsets.append(base_offset + match.start() // BLOCK_SIZE)
            match = pattern.search(blocks, match.start() + 1)
        return offsets


def _list_complete_event_boundaries(raw: bytes, base_offset: int, is_end_of_file: bool) -> list[int]:
    """Return the boundaries of the complete events at the start of `raw`, from their sizes; `base_offset` is the first.

    At the last boundary is the next event's header or the end of the file.
    """
    position, boundaries = 0, [base_offset]
    limit = len(raw) - (0 if is_end_of_file else FIRST_BLOCK_END)
    while position + FIRST_BLOCK_END <= limit:
        (size,) = _unpack_size(raw, position)
        if not FIRST_BLOCK_END <= size <= limit - position:
            break
        position += size
        boundaries.append(base_offset + position)
    return boundaries


# --- Encrypted logs ---

ENCRYPTED_HEADER_SIZE = 512
"""Number of bytes before the plain image of a MySQL log."""

NO_KEY_MESSAGE = "the log is encrypted; give the key with --keyfile FILE"
"""Message for a log without a key."""

_PASSWORD_SIZE = 32
_IV_SIZE = 16
_VERSION = 1
_STREAM_CHUNK_SIZE = 1 << 20
_MAX_PROBED_EVENTS = 64
_START_ENCRYPTION = struct.Struct("<BI12s")
_SCHEME = 1


def _is_end_field(field: Any, fields: Any, context: Any) -> bool:
    """Return whether a header field is the end marker."""
    return str(field.type) == "end"


ENCRYPTION_HEADER = Struct(
    "magic" / Const(ENCRYPTED_MAGIC),
    "version" / Int8ul,
    "fields"
    / RepeatUntil(
        _is_end_field,
        Struct(
            "type" / Enum(Int8ul, end=0, key_id=1, encrypted_password=2, iv=3),
            "value"
            / Switch(
                this.type,
                {
                    "end": Pass,
                    "key_id": Struct("length" / Int8ul, "text" / Bytes(this.length)),
                    "encrypted_password": Bytes(_PASSWORD_SIZE),
                    "iv": Bytes(_IV_SIZE),
                },
                default=Error,
            ),
        ),
    ),
    "end" / Tell,
    Check(this.end <= ENCRYPTED_HEADER_SIZE),
    "padding" / Bytes(ENCRYPTED_HEADER_SIZE - this.end),
)
"""The first 512 bytes of a file encrypted by MySQL."""

ENCRYPTED_FILE_HEADER = Struct("encryption" / ENCRYPTION_HEADER, "magic" / Const(MAGIC))
"""The 516 bytes before the first event of a file encrypted by MySQL (decrypted)."""

ENCRYPTED_EVENT_HEAD = Struct(
    "start" / Tell,
    "sealed_head" / Bytes(9),
    "event_size" / Int32ul,
    Check(this.event_size >= HEADER_SIZE),
    Check(this.event_size <= MAX_EVENT_SIZE),
    "sealed_body" / Bytes(this.event_size - 13),
    "end" / Tell,
)
"""An encrypted MariaDB event without the key: only its size is readable. Matches a plain event too."""


class EncryptionHeader(msgspec.Struct, frozen=True):
    """Header of an encrypted MySQL log; `encrypted_password` is encrypted with the master key `key_id` and this IV."""

    version: int
    key_id: str
    encrypted_password: bytes
    iv: bytes


class StartEncryption(msgspec.Struct, frozen=True):
    """START_ENCRYPTION event; `end`: file offset of the first encrypted event."""

    scheme: int
    key_version: int
    nonce: bytes
    server_id: int
    end: int


# -- MySQL -----------------------------------------------------------------------------------------------------------


def parse_encryption_header(head: bytes) -> EncryptionHeader:
    """Parse the header of an encrypted MySQL log from the first bytes of the file.

    Raises:
        MalformedError: the header is damaged, truncated, or of another version; `finding_id` says which.
    """
    if not head.startswith(ENCRYPTED_MAGIC):
        raise MalformedError("this is not an encrypted MySQL log", finding_id="bad-magic")
    if head[4:5] != bytes([_VERSION]) and len(head) > 4:
        raise MalformedError(f"the encryption header has version {head[4]}", None, "unsupported-version")
    parsed = _parse_schema(ENCRYPTION_HEADER, head[:ENCRYPTED_HEADER_SIZE])
    values = {str(one.type): one.value for one in parsed.fields}
    missing = [name for name in ("key_id", "encrypted_password", "iv") if name not in values]
    if missing:
        raise MalformedError(f"the encryption header lacks {missing[0]}", finding_id="bad-header")
    key_id = values["key_id"].text.decode("utf-8", "backslashreplace")
    return EncryptionHeader(parsed.version, key_id, values["encrypted_password"], values["iv"])


def _parse_schema(schema: Construct, data: bytes) -> Struct:
    """Parse bytes by a schema. Raises MalformedError: they do not match it."""
    try:
        return schema.parse(data)
    except ConstructError as error:
        reason = "it is truncated" if len(data) < ENCRYPTED_HEADER_SIZE else "it has an unknown field"
        raise MalformedError(f"the encryption header cannot be read: {reason}", None, "bad-header") from error


def create_mysql_decryptor_factory(file_head: bytes, master_key: bytes) -> Callable[[RangeReader], BufferDecryptor]:
    """Return a function that opens an encrypted MySQL log for reading.

    The decryptor only needs the bytes that it is given, so it works on streams too.

    Args:
        file_head: the first bytes of the file, up to its first event if there is one.

    Raises:
        MalformedError: see `parse_encryption_header`.
        KeyFileError: the key does not decrypt the log.
    """
    header = parse_encryption_header(file_head)
    if len(master_key) != MASTER_KEY_SIZE:
        raise KeyFileError(f"the master key has {len(master_key)} bytes, not {MASTER_KEY_SIZE}")
    secret = hashlib.sha512(decrypt_aes_cbc(master_key, header.iv, header.encrypted_password)).digest()
    first = bytearray(file_head[: ENCRYPTED_HEADER_SIZE + len(MAGIC) + HEADER_SIZE])
    _create_stream_decryptor(secret)(0, memoryview(first))
    if not _is_plain_log_start(bytes(first[ENCRYPTED_HEADER_SIZE:])):
        raise KeyFileError(f"the keyring's key {header.key_id!r} does not decrypt this log: it is the wrong key")
    return lambda _: _create_stream_decryptor(secret)


def _is_plain_log_start(first_bytes: bytes) -> bool:
    """Return whether the bytes begin a plain log: with the magic, or with a valid FORMAT_DESCRIPTION."""
    if len(first_bytes) < len(MAGIC) + HEADER_SIZE or first_bytes.startswith(MAGIC):
        return MAGIC.startswith(first_bytes[: len(MAGIC)])
    event = first_bytes[len(MAGIC) :]
    end = int.from_bytes(event[END_LOG_POS_AT:FLAGS_AT], "little")
    return event[TYPE_AT] == EventType.FORMAT_DESCRIPTION and end == len(MAGIC) + read_event_size(event)


def _create_stream_decryptor(key_and_nonce: bytes) -> BufferDecryptor:
    """Return the AES-256-CTR decryptor for the bytes after the header.

    `key_and_nonce`: 32 bytes of key, then the 8 bytes before the block counter.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    nonce = key_and_nonce[32:40]
    cipher = Cipher(algorithms.AES(key_and_nonce[:32]), modes.CTR(nonce + bytes(8))).decryptor()

    def decrypt(offset: int, view: memoryview) -> None:
        for start in range(max(0, ENCRYPTED_HEADER_SIZE - offset), len(view), _STREAM_CHUNK_SIZE):
            block, skip = divmod(offset + start - ENCRYPTED_HEADER_SIZE, 16)
            cipher.reset_nonce(nonce + block.to_bytes(8, "big"))
            cipher.update(bytes(skip))
            chunk = view[start : start + _STREAM_CHUNK_SIZE]
            chunk[:] = cipher.update(chunk)

    return decrypt


# -- MariaDB ---------------------------------------------------------------------------------------------------------


def parse_start_encryption(event: bytes, offset: int) -> StartEncryption:
    """Parse a complete START_ENCRYPTION event at a file offset.

    Raises:
        MalformedError: the event is too short, or has an unknown scheme.
    """
    if not HEADER_SIZE + _START_ENCRYPTION.size <= read_event_size(event) <= len(event):
        raise MalformedError(f"START_ENCRYPTION of {read_event_size(event)} bytes: wrong size", None, "bad-header")
    scheme, version, nonce = _START_ENCRYPTION.unpack_from(event, HEADER_SIZE)
    if scheme != _SCHEME:
        raise MalformedError(f"encryption scheme {scheme} is unknown", None, "unsupported-version")
    return StartEncryption(
        scheme, version, nonce, int.from_bytes(event[5:9], "little"), offset + read_event_size(event)
    )


class EventDecryptorFactory(msgspec.Struct):
    """Opens an encrypted MariaDB log for reading (`LogFileLayout.decrypt`).

    `decryptor`: the decryptor, once the file is open.
    """

    create: Callable[[RangeReader], EventDecryptor]
    decryptor: EventDecryptor | None = None

    def __call__(self, read_range: RangeReader) -> EventDecryptor:
        """Open the file."""
        self.decryptor = self.create(read_range)
        return self.decryptor


def create_mariadb_decryptor_factory(
    start_encryption: StartEncryption, key: bytes, file_head: bytes
) -> EventDecryptorFactory:
    """Return a factory that opens an encrypted MariaDB log, whether its plugin uses AES-CBC or AES-CTR.

    If bytes were removed or inserted, the events after them are only found under AES-CBC, where their headers show the
    offset at which they were written.

    Args:
        file_head: the first bytes of the file, with the events before `start.end` and some after it.

    Raises:
        KeyFileError: the key does not decrypt any event of the head.
    """
    since, server_id = int.from_bytes(file_head[4:8], "little"), int.from_bytes(file_head[9:13], "little")
    is_relay = bool(int.from_bytes(file_head[21:23], "little") & EventFlag.RELAY_LOG)

    def create_evidence() -> HeaderEvidence:
        return HeaderEvidence({server_id, start_encryption.server_id}, since, is_relay)

    cipher_class = _choose_cipher_class(start_encryption, key, file_head, create_evidence())
    return EventDecryptorFactory(
        lambda read: EventDecryptor(
            cipher_class(key, start_encryption.nonce), start_encryption.end, create_evidence(), read
        )
    )


_CIPHERS: tuple[Callable[[bytes, bytes], EventCipher], ...] = (CbcEventCipher, CtrEventCipher)


def _choose_cipher_class(
    start_encryption: StartEncryption, key: bytes, head: bytes, evidence: HeaderEvidence
) -> Callable[[bytes, bytes], EventCipher]:
    """Return the cipher that decrypts the events in the head to valid headers."""
    events = _list_first_event_offsets(start_encryption.end, head)
    if not events:
        return CbcEventCipher
    for cipher_class in _CIPHERS:
        cipher = cipher_class(key, start_encryption.nonce)
        heads = [(decrypt_common_header(cipher, head[at:], at), at) for at in events]
        if any(one is not None and evidence.is_certain_header(one, at) for one, at in heads):
            return cipher_class
    raise KeyFileError("the key file's key 1 does not decrypt this log: it is the wrong key")


def _list_first_event_offsets(first_event_offset: int, head: bytes) -> list[int]:
    """Return the offsets of the first encrypted events, as far as the head extends and sizes are plausible."""
    offsets: list[int] = []
    while len(head) - first_event_offset >= 20 and len(offsets) < _MAX_PROBED_EVENTS:
        offsets.append(first_event_offset)
        size = read_event_size(head[first_event_offset : first_event_offset + 13])
        if not HEADER_SIZE <= size <= MAX_EVENT_SIZE:
            break
        first_event_offset += size
    return offsets
