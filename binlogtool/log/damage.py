"""Findings about bad frames and rows: the scanner says where, the schema says why."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

from construct import Construct, ConstructError

from binlogtool.findings import Finding, make_finding
from binlogtool.formats.fields import ChecksumResult
from binlogtool.formats.layouts import FrameLevel, LogFileLayout
from binlogtool.limits import KIB, Limits
from binlogtool.schema.scanner import ScanStop, StopReason

EXCERPT_BYTES = 64 * KIB
"""Bytes of a damaged frame that are looked at for an explanation (the checksum covers the whole frame)."""


def explain_checksum_mismatch(layout: LogFileLayout, data: bytes, offset: int, record: int) -> Finding:
    """Create the finding for a frame whose stored and computed checksums differ. data: the frame as its length says."""
    verified = _find_checksum_result(layout.frame.schema.parse(data))
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
        flip = _find_flipped_bit(layout, data, offset, verified)
        if flip is not None:
            facts |= flip
            message += f"; one flipped bit explains it: bit {flip['flipped_bit']} of byte {flip['flipped_byte']:#x}"
            message += f" ({flip['flipped_field']})" if flip["flipped_field"] else ""
    return make_finding("checksum-mismatch", offset, len(data), message, record=record, **facts)


def explain_hidden_frame(
    layout: LogFileLayout, corrected_frame: bytes, data: bytes, offset: int, record: int, flip: tuple[int, int]
) -> Finding:
    """Create the finding for a frame that one flipped bit hides. flip: byte in the corrected frame, and bit."""
    verified, (byte, bit) = _find_checksum_result(layout.frame.schema.parse(corrected_frame)), flip
    assert verified is not None
    stored, computed = verified.stored, layout.frame.checksum(data[verified.start : verified.end])
    rows_inside = [
        r for r in _trace_rows(layout.frame.schema, corrected_frame) if r.unit == "file" and r.start <= byte < r.end
    ]
    field = max(rows_inside, key=lambda row: row.depth).path if rows_inside else ""
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
    return make_finding("checksum-mismatch", offset, len(data), message, record=record, **facts)


def correct_bit(data: bytes, offset: int, item: Finding) -> bytes | None:
    """Return the frame with the flipped bit corrected that explains its checksum; None where none does."""
    if "flipped_byte" not in item.facts:
        return None
    fixed_frame = bytearray(data)
    fixed_frame[item.facts["flipped_byte"] - offset] ^= 1 << item.facts["flipped_bit"]
    return bytes(fixed_frame)


def recompute_checksum(layout: LogFileLayout, data: bytes, item: Finding) -> bytes | None:
    """Return the frame with the checksum of its present bytes; None where the field is not found."""
    if "stored" not in item.facts:
        return None
    stored, computed = int(item.facts["stored"], 16), int(item.facts["computed"], 16)
    row = _find_checksum_row(_trace_rows(layout.frame.schema, data), stored)
    if row is None:
        return None
    big = data[row.start : row.end].endswith(stored.to_bytes(4, "big"))
    order: Literal["little", "big"] = "big" if big else "little"
    return data[: row.end - 4] + computed.to_bytes(4, order) + data[row.end :]


def _find_checksum_row(rows: Iterable[Any], stored: int) -> Any:
    """Return the field that holds the checksum: the last one with this value."""
    return next((r for r in reversed(list(rows)) if r.leaf and r.unit == "file" and _holds_checksum(r, stored)), None)


def checksum_difference(frame: FrameLevel, data: bytes) -> tuple[int, int, int] | None:
    """Return stored xor computed checksum of a frame, and the range that it covers; None where there is none."""
    try:
        verified = _find_checksum_result(frame.schema.parse(data))
    except (ConstructError, OverflowError, ValueError):
        return None
    return None if verified is None else (verified.stored ^ verified.computed, verified.start, verified.end)


def _find_checksum_result(value: Any) -> ChecksumResult | None:
    if isinstance(value, ChecksumResult):
        return value
    if isinstance(value, dict):
        return next((v for v in map(_find_checksum_result, value.values()) if v is not None), None)
    return None


def _find_flipped_bit(
    layout: LogFileLayout, data: bytes, offset: int, verified: ChecksumResult
) -> dict[str, Any] | None:
    from binlogtool.formats.syndrome import locate_flip

    if layout.frame.checksum is None:
        return None
    flip = locate_flip(layout.frame.checksum, verified.stored, verified.computed, verified.end - verified.start)
    if flip is None:
        return None
    field, position = _find_flipped_field(layout, data, verified, flip)
    return {"flipped_byte": offset + position, "flipped_bit": flip.bit, "flipped_field": field}


def _find_flipped_field(layout: LogFileLayout, data: bytes, verified: ChecksumResult, flip: Any) -> tuple[str, int]:
    """Return the innermost named field that holds the flipped bit, and the bit's byte in the frame."""
    corrected = bytearray(data)
    position = verified.start + flip.byte
    if flip.where == "data":
        corrected[position] ^= 1 << flip.bit
    rows = _trace_rows(layout.frame.schema, bytes(corrected))
    if flip.where == "stored":
        row = _find_checksum_row(rows, verified.stored)
        if row is None:
            return "", 0
        little = data[row.start : row.end].endswith(verified.stored.to_bytes(4, "big"))
        return row.path, (row.end - 1 - flip.byte) if little else row.start + flip.byte
    rows_inside = [r for r in rows if r.unit == "file" and r.start <= position < r.end]
    return (max(rows_inside, key=lambda row: row.depth).path if rows_inside else ""), position


def _holds_checksum(row: Any, stored: int) -> bool:
    return isinstance(row.value, int) and row.value == stored and row.end - row.start >= 4


def explain_broken_frame(layout: LogFileLayout, stop: ScanStop, data: bytes, offset: int, record: int) -> Finding:
    """Create the finding for a frame that does not parse. data: its bytes, at most EXCERPT_BYTES."""
    field = stop.field or "frame"
    message, position, own_id = _explain_with_schema(layout.frame.schema, data)
    facts: dict[str, Any] = {"field": field, "field_offset": offset + position}
    if stop.reason == StopReason.CONSTANT:
        return make_finding(
            "bad-magic", offset, min(len(data), 4), message or f"{field} is wrong", record=record, **facts
        )
    if stop.reason == StopReason.BOUNDS:
        text = message or f"{field} cannot be true"
        return make_finding("length-out-of-bounds", offset, len(data), text, record=record, **facts)
    id_ = own_id if own_id in ("varint-overlong", "count-out-of-bounds") else "bad-header"
    return make_finding(id_, offset, len(data), message or f"{field} is malformed", record=record, **facts)


def explain_past_end(stop: ScanStop, offset: int, need: int, size: int, record: int) -> Finding:
    """Create the finding for a frame that declares bytes beyond the end of the file although provable frames follow."""
    message = f"declares bytes up to {need:#x}, the file ends at {size:#x}"
    return make_finding(
        "length-out-of-bounds", offset, size - offset, message, record=record, field=stop.field or "frame"
    )


def explain_over_limit(stop: ScanStop, offset: int, need: int, limit: int, record: int) -> Finding:
    """Create the finding for a frame that fits into the file, but exceeds the user's or the format's limit."""
    size = need - offset
    message = f"declares at least {size:,} bytes, over the ceiling of {limit:,}; --max-record raises it"
    facts: dict[str, Any] = {"field": stop.field or "frame", "declared": size, "ceiling": limit}
    return make_finding("length-out-of-bounds", offset, size, message, record=record, **facts)


def explain_undecodable(layout: LogFileLayout, data: bytes, offset: int) -> Finding:
    """Create the finding for a frame without a checksum that does not pass the format's own proof."""
    message, position, own_id = _explain_with_schema(layout.frame.schema, data)
    return make_finding(
        own_id or "payload-undecodable", offset, len(data), message or "the content is not what the format demands",
        field_offset=offset + position,
    )  # fmt: skip


def explain_bad_row(schema: Construct, stop: ScanStop, row: bytes, offset: int, size: int, inner: int) -> Finding:
    """Create the finding for a payload that rows of this schema do not tile.

    Args:
        row: bytes from the failing row on.
        inner: its offset in the payload.
    """
    message, position, own_id = _explain_with_schema(schema, row[:EXCERPT_BYTES])
    message = message or f"{stop.field or 'row'}: {stop.reason.name.lower()}"
    text = f"row at payload offset {inner}: {message}"
    return make_finding(own_id or "payload-undecodable", offset, size, text, inner_offset=inner + position)


def _trace_rows(schema: Any, data: bytes) -> Any:
    """Return the fields that are in the file; nothing is unpacked for them."""
    return _trace(schema, data, unpacks=False).rows


def _trace(schema: Any, data: bytes, *, unpacks: bool = True) -> Any:
    from binlogtool.schema.trace import trace_record  # most files do not need it

    return trace_record(schema, data, 0, Limits(), decompress=unpacks)


@lru_cache(maxsize=16)
def _explain_with_schema(schema: Any, data: bytes) -> tuple[str, int, str | None]:
    """Return the schema's error message, its position, and its finding id.

    The last few results are cached: garbage often repeats.
    """
    try:
        error = _trace(schema, data).error
    except ConstructError as trouble:  # pragma: no cover - trace turns these into values
        return str(trouble), 0, None
    if error is None:
        return "", 0, None
    return f"{error.path}: {error.message}", error.position, error.finding_id
