"""Decode statements too long to hold in memory: their text comes in pieces, a compressed one unpacked piece by
piece.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.codes import QUERY_EVENTS, EventType
from binlogtool.formats.binlog_events.events.decoding import decode_body, parse_query
from binlogtool.formats.binlog_events.wire.compression import iter_block_pieces, read_declared_size
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.longvalues import BodyWithLongValues, make_long_value, split_into_pieces
from binlogtool.limits import Limits

_MIN_PACKED_BYTES = 512
"""Bytes of an event that may hold a long text: nothing is packed to less than a thousandth of its size."""

_HEAD_BYTES = 1 << 17
"""Bytes: more than what can stand before the text. The text itself is copied once only: it may be all that fits."""


def decode_long_statement(
    code: int, body: memoryview, description: FormatDescription | None, limits: Limits
) -> BodyWithLongValues | None:
    """Decode the body of a statement whose text is longer than `limits.max_whole`; None for any other event.

    Raises:
        MalformedError, CodecError: the body does not match its type.
    """
    max_whole, is_compressed = limits.max_whole, code == EventType.QUERY_COMPRESSED
    if max_whole is None or code not in QUERY_EVENTS or len(body) < (_MIN_PACKED_BYTES if is_compressed else max_whole):
        return None
    head = bytes(body[:_HEAD_BYTES])
    text_at = len(head) - len(parse_query(head).sql)
    sql = bytes(body[text_at:])
    if (read_declared_size(sql) if is_compressed else len(sql)) <= max_whole:
        return None
    fields = decode_body(EventType.QUERY, head[:text_at], description)
    fields["sql"] = make_long_value(
        (lambda: iter_block_pieces(sql, limits)) if is_compressed else split_into_pieces(sql)
    )
    return BodyWithLongValues(fields)
