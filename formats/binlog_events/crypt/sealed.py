"""Random-access decryption of MariaDB's encrypted events: finds where they start, also after damage.

The start of an event must be known to decrypt it (`sealing`), so the chain of the readable sizes is
followed from the first encrypted event on. Every boundary is proven by the decrypted header after it. Bytes
that belong to no event stay unchanged. Memory is bounded: the events around the last position read, and a
sparse list of boundaries.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import msgspec

from binlogtool.formats.binlog_events.codes import HEADER_SIZE, MAX_EVENT, TYPES, EventFlag
from binlogtool.formats.binlog_events.crypt.sealing import (
    BLOCK,
    FIRST,
    Sealing,
    from_stream,
    head_of,
    size_of,
    to_stream,
)
from binlogtool.formats.layouts import Read

_CHUNK = 1 << 18
_STRIDE = 1 << 16
_BORDERS = 1 << 13
_PIECES = (1 << 10, 1 << 16)
"""Bytes that a search looks at in one step, the first time and at most."""
_WORK_FLOOR = 1 << 28
_WORK_PER_BYTE = 16
_MEMO = 1 << 14
_IDS = 256
_TEN_YEARS = 10 * 366 * 86400
_U32 = (1 << 32) - 1
_LOW = (1 << 24) - 1
_KNOWN_FLAGS = sum(flag.value for flag in EventFlag)
_UNKNOWN_HIGH = 0xFF & ~(_KNOWN_FLAGS >> 8)
_ZERO = bytes(4)
_HEADER = struct.Struct("<IBIIIH")
_pack = struct.Struct("<I").pack
_size_at = struct.Struct("<9xI").unpack_from


class Place(NamedTuple):
    """Start of an event, and how many bytes after the offset where it was written it is now."""

    offset: int
    shift: int


NOWHERE = Place(1 << 62, 0)


class Landmark(NamedTuple):
    """Start of an event, and the ids of the servers whose events precede it."""

    offset: int
    shift: int
    server_ids: list[int]


class Span(msgspec.Struct, frozen=True):
    """Consecutive events in `[start, end)`; after them, up to `following`, bytes that belong to no event.

    `data`: their plain bytes; None for one event that is decrypted in parts.
    """

    start: Place
    end: int
    following: Place
    data: bytes | None = None


class Borders:
    """Some of the event starts, in order, spread evenly over what was read."""

    def __init__(self, first: Place) -> None:
        self._places = [first]
        self._stride = _STRIDE

    def note(self, place: Place) -> None:
        """Remember an event start, unless there is one nearby."""
        if place.offset < self._places[-1].offset + self._stride:
            return
        self._places.append(place)
        if len(self._places) > _BORDERS:
            del self._places[1::2]
            self._stride *= 2

    def before(self, offset: int) -> Place:
        """Return the last known event start at or before this offset."""
        return self._places[bisect_right(self._places, Place(offset, NOWHERE.offset)) - 1]


class Known:
    """Known facts that distinguish headers of a file's events from noise.

    `server_ids`: those of the file's readable events. `since`: their time in seconds. `is_relay`: it is a relay
    log, where end_log_pos is that of the source.
    """

    def __init__(self, server_ids: set[int], since: int, relay: bool) -> None:
        self.server_ids = server_ids
        self.relay = relay
        self._since = since
        self.seen: set[bytes] = set()
        """Type and server id, as they stand in a header."""

    def learn(self, head: bytes) -> None:
        """Remember type and server id of an event."""
        if len(self.server_ids) < _IDS:
            self.server_ids.add(int.from_bytes(head[5:9], "little"))
        if len(self.seen) < _MEMO:
            self.seen.add(head[4:9])

    def certain(self, head: bytes, at: int) -> bool:
        """Return whether this is the header of an event that was written at `at`, beyond reasonable doubt."""
        _, type_, server, size, end, flags = _HEADER.unpack(head)
        if flags & ~_KNOWN_FLAGS:
            return False
        if end == (at + size) & _U32 and not self.relay:
            return True
        return (end == 0 or server in self.server_ids) and _is_type(type_, flags)

    def placed(self, head: bytes, at: int) -> bool:
        """Return whether the header's position agrees with the offset, or is not set."""
        return self.relay or head[13:17] in (_ZERO, _pack((at + size_of(head)) & _U32))

    def likely(self, head: bytes) -> bool:
        """Return whether this may be the header of a server that was not seen before, in a relay log."""
        time, type_, _, size, _, flags = _HEADER.unpack(head)
        if flags & ~_KNOWN_FLAGS or not HEADER_SIZE <= size <= MAX_EVENT or not _is_type(type_, 0):
            return False
        return time in (0, min(max(time, self._since - _TEN_YEARS), self._since + _TEN_YEARS))


def _is_type(type_: int, flags: int) -> bool:
    """Return whether this is a known event type, or an ignorable one."""
    return (type_ in TYPES and type_ != 0) or bool(flags & EventFlag.IGNORABLE)


class Sealed:
    """Decryptor of one file (`BufferDecryptor`), called with an offset and the bytes at that offset."""

    def __init__(self, sealing: Sealing, first: int, known: Known, read: Read) -> None:
        self._sealing = sealing
        self._known = known
        self._read = read
        self._first = first
        self._borders = Borders(Place(first, 0))
        self._span: Span | None = None
        self._slice: tuple[int, bytes] = (0, b"")
        self._landings: dict[int, Place] = {}
        self._work = 0

    def __call__(self, offset: int, view: memoryview) -> None:
        """Replace the encrypted bytes at this file offset by the plain ones."""
        position, end = max(offset, self._first), offset + len(view)
        while position < end:
            span = self._span_at(position)
            if position >= span.end:
                position = span.following.offset
                continue
            low, data = self._plain(span, position)
            stop = min(end, low + len(data))
            if stop <= position:  # an event that the file does not contain completely
                return
            view[position - offset : stop - offset] = data[position - low : stop - low]
            position = stop

    def landmark(self, offset: int) -> Landmark:
        """Return what a reader that begins at this offset must know; everything before it must have been read."""
        return Landmark(*self._borders.before(offset), sorted(self._known.server_ids))

    def begin(self, known: Landmark) -> None:
        """Start reading after an anchor; events before it are not read."""
        self._borders.note(Place(known.offset, known.shift))
        self._known.server_ids.update(known.server_ids)

    # -- events --------------------------------------------------------------------------------------------------

    def _span_at(self, position: int) -> Span:
        """Return the range of events, or the gap after it, that contains this offset."""
        span = self._span
        if span is None or not span.start.offset <= position < span.following.offset:
            place = self._borders.before(position)
            if span is not None and place.offset <= span.following.offset <= position:
                place = span.following
            span = self._make(place)
            while position >= span.following.offset:
                span = self._make(span.following)
            self._span = span
        return span

    def _make(self, start: Place) -> Span:
        """Return the events from an event start on."""
        self._borders.note(start)
        raw = self._read(start.offset, _CHUNK + FIRST)
        cuts = _cuts(raw, start.offset, len(raw) < _CHUNK + FIRST)
        if len(cuts) < 2:
            return self._single(start)
        plain = self._sealing.events(raw, start.offset, cuts, start.shift)
        good = self._good(plain, cuts, start.shift)
        following = self._place(cuts[good], start.shift)
        if good == 0:
            return self._astray(start, following)
        if following is not None:
            return Span(start, cuts[good], following, plain[: cuts[good] - start.offset])
        following = self._search(cuts[good - 1] + FIRST, start.shift)
        if following.offset < cuts[good]:  # the last event's size is wrong
            cuts = [*cuts[:good], following.offset]
            plain = self._sealing.events(raw, start.offset, cuts, start.shift)
        return Span(start, cuts[good], following, plain[: cuts[good] - start.offset])

    def _good(self, plain: bytes, cuts: list[int], shift: int) -> int:
        """Return how many consecutive events have a header that fits their offset."""
        base, seen, anywhere = cuts[0], self._known.seen, self._known.relay
        for count, (low, high) in enumerate(pairwise(cuts)):
            i = low - base
            if (
                plain[i + 4 : i + 9] in seen
                and not plain[i + 18] & _UNKNOWN_HIGH
                and (anywhere or plain[i + 13 : i + 17] in (_ZERO, _pack((high - shift) & _U32)))
            ):
                continue
            if self._place(low, shift) != (low, shift):
                return count
        return len(cuts) - 1

    def _astray(self, start: Place, place: Place | None) -> Span:
        """Return the range where no event starts at the expected offset, or one that was written elsewhere."""
        if place is not None and place != start:
            return self._make(place)
        return Span(start, start.offset, self._search(start.offset + 1, start.shift))

    def _single(self, start: Place) -> Span:
        """Return the range of one event that is too long to decrypt at once, too short or incomplete; or of
        no event.
        """
        place = self._place(start.offset, start.shift)
        if place != start:
            return self._astray(start, place)
        end = start.offset + size_of(self._read(start.offset, FIRST))
        if end == start.offset:  # end of file
            return Span(start, end, NOWHERE)
        following = self._place(end, start.shift)
        if following is None:
            following = self._search(start.offset + FIRST, start.shift)
            end = min(end, following.offset)
        return Span(start, end, following)

    def _plain(self, span: Span, position: int) -> tuple[int, bytes]:
        """Return plain bytes of a range around a position, and the offset where they start."""
        if span.data is not None:
            return span.start.offset, span.data
        low, data = self._slice
        if not low <= position < low + len(data):
            low, data = self._slice = self._decrypt(span, position)
        return low, data

    def _decrypt(self, span: Span, position: int) -> tuple[int, bytes]:
        """Return the part of one long event that contains a position, and its offset."""
        start, shift = span.start
        number = max(0, position - start - 4) // _CHUNK
        stream = start + 4 + number * _CHUNK
        stop = min(span.end, stream + _CHUNK)
        low = stream if number else start
        raw = self._read(low - BLOCK if number else low, stop - low + (BLOCK if number else 0))
        before, raw = (raw[:BLOCK], raw[BLOCK:]) if number else (b"", raw)
        data = raw if number else to_stream(raw)
        whole = len(data) if low + len(raw) == span.end else len(data) - len(data) % BLOCK
        plain = self._sealing.part(start - shift, number * _CHUNK // BLOCK, before, data[:whole]) + data[whole:]
        return low, plain if number else from_stream(plain, raw[9:13])

    # -- borders -------------------------------------------------------------------------------------------------

    def _place(self, offset: int, shift: int) -> Place | None:
        """Return the event start at this offset, possibly with another shift, or the end of the file, or None."""
        raw = self._read(offset, FIRST)
        if not raw:
            return Place(offset, shift) if self._read(offset - 1, 1) else None
        head = head_of(self._sealing, raw, offset - shift)
        if head is None or not HEADER_SIZE <= size_of(raw) <= MAX_EVENT:
            return None
        known = self._known
        sure = known.certain(head, offset - shift)
        if not sure or not known.placed(head, offset - shift):
            moved = self._moved(raw, head, offset)
            if moved is not None:
                return moved
        if sure or (known.relay and known.likely(head) and self._likely(offset + size_of(raw), shift)):
            known.learn(head)
            return Place(offset, shift)
        return None

    def _likely(self, offset: int, shift: int) -> bool:
        """Return whether an event or the end of the file may be at this offset."""
        raw = self._read(offset, FIRST)
        if not raw:
            return bool(self._read(offset - 1, 1))
        head = head_of(self._sealing, raw, offset - shift)
        return head is not None and self._known.likely(head)

    def _moved(self, raw: bytes, head: bytes, offset: int) -> Place | None:
        """Return the start of an event that was written elsewhere: its header has the low three bytes of its
        position.

        A wrong offset in the IV only affects what is after these bytes in the first block.
        """
        known = self._known
        if known.relay or not self._sealing.finds_shift or int.from_bytes(head[5:9], "little") not in known.server_ids:
            return None
        written = int.from_bytes(head[13:16], "little") - size_of(raw)
        shift = (offset - written) & _LOW
        shift -= (_LOW + 1) * (shift > _LOW >> 1)
        right = head_of(self._sealing, raw, offset - shift)
        if right is None or right[13:17] == _ZERO or not known.placed(right, offset - shift):
            return None
        return Place(offset, shift) if known.certain(right, offset - shift) else None

    def _search(self, start: int, shift: int) -> Place:
        """Return the next event of a known server at or after `start`; NOWHERE if there is none."""
        if start not in self._landings:
            if len(self._landings) >= _MEMO:
                self._landings.clear()
            self._landings[start] = self._searched(start, shift)
        return self._landings[start]

    def _searched(self, position: int, shift: int) -> Place:
        """Search for the next event."""
        pattern = self._pattern()
        size, largest = _PIECES
        while self._work < _WORK_FLOOR + _WORK_PER_BYTE * position:
            raw = self._read(position, size + FIRST)
            count = min(size, len(raw) - HEADER_SIZE)
            if count <= 0:
                break
            self._work += count
            for found in self._candidates(raw.ljust(count + FIRST, b"\0"), position, count, pattern):
                end = found + size_of(raw[found - position : found - position + FIRST])
                place = self._place(found, shift) if self._read(end - 1, 1) else None
                if place is not None:
                    return place
            position, size = position + count, min(2 * size, largest)
        return NOWHERE

    def _pattern(self) -> re.Pattern[bytes]:
        """Return the pattern of the known server ids as they appear in `EventCipher.decrypt_first_blocks`."""
        veil = int.from_bytes(self._sealing.veil, "little")
        return re.compile(b"|".join(re.escape(_pack(one ^ veil)) for one in sorted(self._known.server_ids)))

    def _candidates(self, raw: bytes, base: int, count: int, pattern: re.Pattern[bytes]) -> list[int]:
        """Return the offsets where an event of a known server could start."""
        if not raw.strip(b"\0"):
            return []
        heads = self._sealing.heads(raw, base, count)
        found, match = [], pattern.search(heads)
        while match is not None:
            if match.start() % BLOCK == 1:
                found.append(base + match.start() // BLOCK)
            match = pattern.search(heads, match.start() + 1)
        return found


def _cuts(raw: bytes, base: int, ended: bool) -> list[int]:
    """Return the boundaries of the complete events at the start of `raw` by their sizes, offset `base` included.

    After the last one is the next event's header or the end of the file.
    """
    position, cuts = 0, [base]
    limit = len(raw) - (0 if ended else FIRST)
    while position + FIRST <= limit:
        (size,) = _size_at(raw, position)
        if not FIRST <= size <= limit - position:
            break
        position += size
        cuts.append(base + position)
    return cuts
