"""Kernels that write status variables as JSON, exactly as `wire.status` and the JSON writer do.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.wire.status import VARIABLES
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_null, put_unsigned
from binlogtool.formats.jsontext import build_text_table, put_any_text, put_entry
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little_endian

_LABELS = ('{"increment":', ',"offset":', '{"client":', ',"connection":', ',"server":', "}")
INCREMENT, OFFSET, CLIENT, CONNECTION, SERVER, END = range(200, 206)
"""Numbers of labels; those below are codes of variables."""


_TEXTS = {code: f'"{name}":' for code, (name, _) in VARIABLES.items()} | dict(enumerate(_LABELS, INCREMENT))
LABELS = build_text_table({number: text.encode() for number, text in _TEXTS.items()})


@kernel(put_entry)
def put_label(texts: UInt8s, number: int, out: MutableUInt8s, out_pos: int, out_limit: int) -> int:
    """Write a text of the table and make sure that 64 bytes are free after it; a negative `out_pos` is passed on."""
    if out_pos < 0:
        return out_pos
    out_pos = put_entry(texts, 0, number, out, out_pos, out_limit)
    return -1 if out_pos >= 0 and out_limit - out_pos < 64 else out_pos


@kernel(load_little_endian, put_label, put_unsigned)
def put_number_member(
    buf: UInt8s, pos: int, size: int, texts: UInt8s, number: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write a label and the unsigned number of `size` bytes at `buf[pos]`."""
    out_pos = put_label(texts, number, out, out_pos, out_limit)
    return out_pos if out_pos < 0 else put_unsigned(load_little_endian(buf, pos, size), out, out_pos, out_limit)


@kernel()
def number_size(code: int) -> int:
    """Return the bytes of a status variable that is one number; 0 for the others."""
    if code == 0 or code == 10:
        return 4
    if code == 1 or code == 9 or code == 17 or code == 129:
        return 8
    if code == 7 or code == 8 or code == 18:
        return 2
    if code == 13 or code == 128:
        return 3
    if code == 16 or code == 19 or code == 20 or code == 21:
        return 1
    return 0


@kernel(put_any_text, put_null)
def put_databases(
    buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write UPDATED_DB_NAMES; returns (its end, end of the output or an error)."""
    if pos >= limit or out_limit - out_pos < 64:
        return pos, -2 if pos >= limit else -1
    count = buf[pos] + 0
    pos += 1
    if count == 254:
        return pos, put_null(out, out_pos, out_limit)
    out[out_pos] = 91
    out_pos += 1
    for i in range(count):
        end = pos
        while end < limit and buf[end] != 0:
            end += 1
        if end == limit:
            return pos, -2
        if i > 0:
            out[out_pos] = 44
            out_pos += 1
        out_pos = put_any_text(buf, pos, end, out, out_pos, out_limit)
        if out_pos < 0:
            return pos, out_pos
        if out_limit - out_pos < 64:
            return pos, -1
        pos = end + 1
    out[out_pos] = 93
    return pos, out_pos + 1


@kernel(put_number_member, put_unsigned, load_little_endian)
def put_collations(
    buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write CHARACTER_SET_COLLATIONS; returns (its end, end of the output or an error)."""
    if pos >= limit or buf[pos] * 4 > limit - pos - 1:
        return pos, -2
    count = buf[pos] + 0
    pos += 1
    if out_limit - out_pos < 64 * (count + 1):
        return pos, -1
    out[out_pos] = 91
    out_pos += 1
    for i in range(count):
        if i > 0:
            out[out_pos] = 44
            out_pos += 1
        out[out_pos] = 91
        out_pos = put_unsigned(load_little_endian(buf, pos, 2), out, out_pos + 1, out_limit)
        out[out_pos] = 44
        out_pos = put_unsigned(load_little_endian(buf, pos + 2, 2), out, out_pos + 1, out_limit)
        out[out_pos] = 93
        out_pos += 1
        pos += 4
    out[out_pos] = 93
    return pos, out_pos + 1


@kernel(
    number_size,
    put_any_text,
    put_collations,
    put_databases,
    put_number_member,
    put_label,
    put_unsigned,
    load_little_endian,
)
def put_variable(
    buf: UInt8s, pos: int, limit: int, code: int, texts: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> tuple[int, int]:
    """Write the value of a status variable; returns (its end, end of the output or an error)."""
    size = number_size(code)
    if size > 0:
        if limit - pos < size:
            return pos, -2
        return pos + size, put_unsigned(load_little_endian(buf, pos, size), out, out_pos, out_limit)
    if code == 3:
        if limit - pos < 4:
            return pos, -2
        out_pos = put_number_member(buf, pos, 2, texts, INCREMENT, out, out_pos, out_limit)
        out_pos = put_number_member(buf, pos + 2, 2, texts, OFFSET, out, out_pos, out_limit)
        return pos + 4, put_label(texts, END, out, out_pos, out_limit)
    if code == 4:
        if limit - pos < 6:
            return pos, -2
        out_pos = put_number_member(buf, pos, 2, texts, CLIENT, out, out_pos, out_limit)
        out_pos = put_number_member(buf, pos + 2, 2, texts, CONNECTION, out, out_pos, out_limit)
        out_pos = put_number_member(buf, pos + 4, 2, texts, SERVER, out, out_pos, out_limit)
        return pos + 6, put_label(texts, END, out, out_pos, out_limit)
    if code == 5 or code == 6:
        if limit - pos < 1 or limit - pos - 1 < buf[pos]:
            return pos, -2
        end = pos + 1 + buf[pos]
        return end, put_any_text(buf, pos + 1, end, out, out_pos, out_limit)
    if code == 12:
        return put_databases(buf, pos, limit, out, out_pos, out_limit)
    if code == 131:
        return put_collations(buf, pos, limit, out, out_pos, out_limit)
    return pos, -2


@kernel(put_label, put_variable)
def put_variables(
    buf: UInt8s, pos: int, limit: int, texts: UInt8s, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write the status variables as a JSON object; -2 for unknown or duplicate variables."""
    seen = 0
    if out_limit - out_pos < 2:
        return -1
    out[out_pos] = 123
    out_pos += 1
    while pos < limit:
        code = buf[pos] + 0
        bit = 1 << (code & 31) << (code >> 7) * 32
        if (code > 31 and code < 128) or code > 131 or seen & bit:
            return -2
        if seen != 0:
            if out_limit - out_pos < 1:
                return -1
            out[out_pos] = 44
            out_pos += 1
        seen |= bit
        out_pos = put_label(texts, code, out, out_pos, out_limit)
        if out_pos < 0:
            return out_pos
        pos, out_pos = put_variable(buf, pos + 1, limit, code, texts, out, out_pos, out_limit)
        if out_pos < 0:
            return out_pos
    if out_limit - out_pos < 1:
        return -1
    out[out_pos] = 125
    return out_pos + 1
