"""Decode statements too long to hold in memory: their text comes in pieces, a compressed one unpacked piece by
piece.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.codes import QUERIES, EventType
from binlogtool.formats.binlog_events.events.decoding import decoded, query_parts
from binlogtool.formats.binlog_events.wire.compression import block_pieces, declared_size
from binlogtool.formats.binlog_events.wire.description import FormatDescription
from binlogtool.formats.longvalues import Parted, cut, long_value
from binlogtool.limits import Limits

_WORTH = 512
"""Bytes of an event that may hold a long text: nothing is packed to less than a thousandth of its size."""

_HEAD = 1 << 17
"""Bytes: more than what can stand before the text. The text itself is copied once only: it may be all that fits."""


def with_long_text(code: int, body: memoryview, description: FormatDescription | None, limits: Limits) -> Parted | None:
    """Decode the body of a statement whose text is longer than `limits.max_whole`; None for any other event.

    Raises:
        MalformedError, CodecError: the body does not match its type.
    """
    most, packed = limits.max_whole, code == EventType.QUERY_COMPRESSED
    if most is None or code not in QUERIES or len(body) < (_WORTH if packed else most):
        return None
    head = bytes(body[:_HEAD])
    begins = len(head) - len(query_parts(head).sql)
    sql = bytes(body[begins:])
    if (declared_size(sql) if packed else len(sql)) <= most:
        return None
    shown = decoded(EventType.QUERY, head[:begins], description)
    shown["sql"] = long_value((lambda: block_pieces(sql, limits)) if packed else cut(sql))
    return Parted(shown)
