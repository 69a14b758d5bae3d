"""Findings about bad frames and rows: the scanner says where, the schema says why."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from construct import Construct, ConstructError

from binlogtool.findings import Finding, finding
from binlogtool.formats.fields import Verified
from binlogtool.formats.layouts import FrameLevel, Layout
from binlogtool.limits import KIB, Limits
from binlogtool.schema.scanner import Stop, StopReason

EXCERPT = 64 * KIB
"""Bytes of a damaged frame that are looked at for an explanation (the checksum covers the whole frame)."""


def checksum_mismatch(layout: Layout, data: bytes, offset: int, record: int) -> Finding:
    """Create the finding for a frame whose stored and computed checksums differ. data: the frame as its length says."""
    verified = _verified(layout.frame.schema.parse(data))
    facts: dict[str, Any] = {}
    message = "stored and computed checksum differ"
    if verified is not None:
        covered = [offset + verified.start, offset + verified.end]
        facts = {
            "algorithm": verified.algorithm,
            "stored": f"{verified.stored:08x}",
            "computed": f"{verified.computed:08x}",
            "covered": covered,
        }
        message = f"stored {verified.stored:08x}, computed {verified.computed:08x}"
        flip = _flipped_bit(layout, data, offset, verified)
        if flip is not None:
            facts |= flip
            message += f"; one flipped bit explains it: bit {flip['flipped_bit']} of byte {flip['flipped_byte']:#x}"
            message += f" ({flip['flipped_field']})" if flip["flipped_field"] else ""
    return finding("checksum-mismatch", offset, len(data), message, record=record, **facts)


def hidden_bit(layout: Layout, right: bytes, data: bytes, offset: int, record: int, flip: tuple[int, int]) -> Finding:
    """Create the finding for a frame that one flipped bit hides. flip: byte in the corrected frame, and bit."""
    verified, (byte, bit) = _verified(layout.frame.schema.parse(right)), flip
    assert verified is not None
    stored, computed = verified.stored, layout.frame.checksum(data[verified.start : verified.end])
    inside = [r for r in _rows(layout.frame.schema, right) if r.unit == "file" and r.start <= byte < r.end]
    field = max(inside, key=lambda row: row.depth).path if inside else ""
    facts: dict[str, Any] = {
        "algorithm": verified.algorithm,
        "stored": f"{stored:08x}",
        "computed": f"{computed:08x}",
        "covered": [offset + verified.start, offset + verified.end],
        "flipped_byte": offset + byte,
        "flipped_bit": bit,
        "flipped_field": field,
    }
    message = f"one flipped bit explains it: bit {bit} of byte {offset + byte:#x}" + (f" ({field})" if field else "")
    return finding("checksum-mismatch", offset, len(data), message, record=record, **facts)


def corrected(data: bytes, offset: int, found: Finding) -> bytes | None:
    """Return the frame with the flipped bit corrected that explains its checksum; None where none does."""
    if "flipped_byte" not in found.facts:
        return None
    mended = bytearray(data)
    mended[found.facts["flipped_byte"] - offset] ^= 1 << found.facts["flipped_bit"]
    return bytes(mended)


def restamped(layout: Layout, data: bytes, found: Finding) -> bytes | None:
    """Return the frame with the checksum of its present bytes; None where the field is not found."""
    if "stored" not in found.facts:
        return None
    stored, computed = int(found.facts["stored"], 16), int(found.facts["computed"], 16)
    row = _stored_row(_rows(layout.frame.schema, data), stored)
    if row is None:
        return None
    big = data[row.start : row.end].endswith(stored.to_bytes(4, "big"))
    order: Literal["little", "big"] = "big" if big else "little"
    return data[: row.end - 4] + computed.to_bytes(4, order) + data[row.end :]


def _stored_row(rows: Iterable[Any], stored: int) -> Any:
    """Return the field that holds the checksum: the last one with this value."""
    return next((r for r in reversed(list(rows)) if r.leaf and r.unit == "file" and _holds(r, stored)), None)


def syndrome(frame: FrameLevel, data: bytes) -> tuple[int, int, int] | None:
    """Return stored xor computed checksum of a frame, and the range that it covers; None where there is none."""
    try:
        verified = _verified(frame.schema.parse(data))
    except (ConstructError, OverflowError, ValueError):
        return None
    return None if verified is None else (verified.stored ^ verified.computed, verified.start, verified.end)


def _verified(value: Any) -> Verified | None:
    if isinstance(value, Verified):
        return value
    if isinstance(value, dict):
        return next((v for v in map(_verified, value.values()) if v is not None), None)
    return None


def _flipped_bit(layout: Layout, data: bytes, offset: int, verified: Verified) -> dict[str, Any] | None:
    from binlogtool.formats.syndrome import locate_flip

    if layout.frame.checksum is None:
        return None
    flip = locate_flip(layout.frame.checksum, verified.stored, verified.computed, verified.end - verified.start)
    if flip is None:
        return None
    field, position = _field_of(layout, data, verified, flip)
    return {"flipped_byte": offset + position, "flipped_bit": flip.bit, "flipped_field": field}


def _field_of(layout: Layout, data: bytes, verified: Verified, flip: Any) -> tuple[str, int]:
    """Return the innermost named field that holds the flipped bit, and the bit's byte in the frame."""
    mended = bytearray(data)
    position = verified.start + flip.byte
    if flip.where == "data":
        mended[position] ^= 1 << flip.bit
    rows = _rows(layout.frame.schema, bytes(mended))
    if flip.where == "stored":
        row = _stored_row(rows, verified.stored)
        if row is None:
            return "", 0
        little = data[row.start : row.end].endswith(verified.stored.to_bytes(4, "big"))
        return row.path, (row.end - 1 - flip.byte) if little else row.start + flip.byte
    inside = [r for r in rows if r.unit == "file" and r.start <= position < r.end]
    return (max(inside, key=lambda row: row.depth).path if inside else ""), position


def _holds(row: Any, stored: int) -> bool:
    return isinstance(row.value, int) and row.value == stored and row.end - row.start >= 4


def broken_frame(layout: Layout, stop: Stop, data: bytes, offset: int, record: int) -> Finding:
    """Create the finding for a frame that does not parse. data: its bytes, at most EXCERPT_BYTES."""
    field = stop.field or "frame"
    message, position, own_id = _reason(layout.frame.schema, data)
    facts: dict[str, Any] = {"field": field, "field_offset": offset + position}
    if stop.reason == StopReason.CONSTANT:
        return finding("bad-magic", offset, min(len(data), 4), message or f"{field} is wrong", record=record, **facts)
    if stop.reason == StopReason.BOUNDS:
        text = message or f"{field} cannot be true"
        return finding("length-out-of-bounds", offset, len(data), text, record=record, **facts)
    id_ = own_id if own_id in ("varint-overlong", "count-out-of-bounds") else "bad-header"
    return finding(id_, offset, len(data), message or f"{field} is malformed", record=record, **facts)


def past_the_end(stop: Stop, offset: int, need: int, size: int, record: int) -> Finding:
    """Create the finding for a frame that declares bytes beyond the end of the file although provable frames follow."""
    message = f"declares bytes up to {need:#x}, the file ends at {size:#x}"
    return finding("length-out-of-bounds", offset, size - offset, message, record=record, field=stop.field or "frame")


def over_ceiling(stop: Stop, offset: int, need: int, ceiling: int, record: int) -> Finding:
    """Create the finding for a frame that fits into the file, but exceeds the user's or the format's limit."""
    size = need - offset
    message = f"declares at least {size:,} bytes, over the ceiling of {ceiling:,}; --max-record raises it"
    facts: dict[str, Any] = {"field": stop.field or "frame", "declared": size, "ceiling": ceiling}
    return finding("length-out-of-bounds", offset, size, message, record=record, **facts)


def undecodable(layout: Layout, data: bytes, offset: int) -> Finding:
    """Create the finding for a frame without a checksum that does not pass the format's own proof."""
    message, position, own_id = _reason(layout.frame.schema, data)
    return finding(
        own_id or "payload-undecodable", offset, len(data), message or "the content is not what the format demands",
        field_offset=offset + position,
    )  # fmt: skip


def bad_row(schema: Construct, stop: Stop, row: bytes, offset: int, size: int, inner: int) -> Finding:
    """Create the finding for a payload that rows of this schema do not tile.

    Args:
        row: bytes from the failing row on.
        inner: its offset in the payload.
    """
    message, position, own_id = _reason(schema, row[:EXCERPT])
    message = message or f"{stop.field or 'row'}: {stop.reason.name.lower()}"
    text = f"row at payload offset {inner}: {message}"
    return finding(own_id or "payload-undecodable", offset, size, text, inner_offset=inner + position)


def _rows(schema: Any, data: bytes) -> Any:
    """Return the fields that are in the file; nothing is unpacked for them."""
    return _traced(schema, data, unpacks=False).rows


def _traced(schema: Any, data: bytes, *, unpacks: bool = True) -> Any:
    from binlogtool.schema.trace import trace  # most files do not need it

    return trace(schema, data, 0, Limits(), unpacks=unpacks)


@lru_cache(maxsize=16)
def _reason(schema: Any, data: bytes) -> tuple[str, int, str | None]:
    """Return the schema's error message, its position, and its finding id.

    The last few results are cached: garbage often repeats.
    """
    try:
        error = _traced(schema, data).error
    except ConstructError as trouble:  # pragma: no cover - trace turns these into values
        return str(trouble), 0, None
    if error is None:
        return "", 0, None
    return f"{error.path}: {error.message}", error.position, error.finding_id
