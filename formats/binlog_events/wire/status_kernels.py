"""Kernels that write status variables as JSON, exactly as `wire.status` and the JSON writer do.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from binlogtool.formats.binlog_events.wire.status import VARIABLES
from binlogtool.formats.fields import kernel
from binlogtool.formats.jsonnumbers import put_null, put_unsigned
from binlogtool.formats.jsontext import put_any_text, put_entry, text_table
from binlogtool.formats.kernel_types import MutableUInt8s, UInt8s
from binlogtool.formats.loads import load_little

_LABELS = ('{"increment":', ',"offset":', '{"client":', ',"connection":', ',"server":', "}")
INCREMENT, OFFSET, CLIENT, CONNECTION, SERVER, END = range(200, 206)
"""Numbers of labels; those below are codes of variables."""


_TEXTS = {code: f'"{name}":' for code, (name, _) in VARIABLES.items()} | dict(enumerate(_LABELS, INCREMENT))
LABELS = text_table({number: text.encode() for number, text in _TEXTS.items()})


@kernel(put_entry)
def put_label(texts: UInt8s, number: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a text of the table and make sure that 64 bytes are free after it; a negative `out_pos` is passed on."""
    if o < 0:
        return o
    o = put_entry(texts, 0, number, out, o, z)
    return -1 if o >= 0 and z - o < 64 else o


@kernel(load_little, put_label, put_unsigned)
def put_member(buf: UInt8s, p: int, size: int, texts: UInt8s, number: int, out: MutableUInt8s, o: int, z: int) -> int:
    """Write a label and the unsigned number of `size` bytes at `buf[pos]`."""
    o = put_label(texts, number, out, o, z)
    return o if o < 0 else put_unsigned(load_little(buf, p, size), out, o, z)


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
def put_databases(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> tuple[int, int]:
    """Write UPDATED_DB_NAMES; returns (its end, end of the output or an error)."""
    if p >= n or z - o < 64:
        return p, -2 if p >= n else -1
    count = buf[p] + 0
    p += 1
    if count == 254:
        return p, put_null(out, o, z)
    out[o] = 91
    o += 1
    for i in range(count):
        end = p
        while end < n and buf[end] != 0:
            end += 1
        if end == n:
            return p, -2
        if i > 0:
            out[o] = 44
            o += 1
        o = put_any_text(buf, p, end, out, o, z)
        if o < 0:
            return p, o
        if z - o < 64:
            return p, -1
        p = end + 1
    out[o] = 93
    return p, o + 1


@kernel(put_member, put_unsigned, load_little)
def put_collations(buf: UInt8s, p: int, n: int, out: MutableUInt8s, o: int, z: int) -> tuple[int, int]:
    """Write CHARACTER_SET_COLLATIONS; returns (its end, end of the output or an error)."""
    if p >= n or buf[p] * 4 > n - p - 1:
        return p, -2
    count = buf[p] + 0
    p += 1
    if z - o < 64 * (count + 1):
        return p, -1
    out[o] = 91
    o += 1
    for i in range(count):
        if i > 0:
            out[o] = 44
            o += 1
        out[o] = 91
        o = put_unsigned(load_little(buf, p, 2), out, o + 1, z)
        out[o] = 44
        o = put_unsigned(load_little(buf, p + 2, 2), out, o + 1, z)
        out[o] = 93
        o += 1
        p += 4
    out[o] = 93
    return p, o + 1


@kernel(number_size, put_any_text, put_collations, put_databases, put_member, put_label, put_unsigned, load_little)
def put_variable(
    buf: UInt8s, p: int, n: int, code: int, texts: UInt8s, out: MutableUInt8s, o: int, z: int
) -> tuple[int, int]:
    """Write the value of a status variable; returns (its end, end of the output or an error)."""
    size = number_size(code)
    if size > 0:
        if n - p < size:
            return p, -2
        return p + size, put_unsigned(load_little(buf, p, size), out, o, z)
    if code == 3:
        if n - p < 4:
            return p, -2
        o = put_member(buf, p, 2, texts, INCREMENT, out, o, z)
        o = put_member(buf, p + 2, 2, texts, OFFSET, out, o, z)
        return p + 4, put_label(texts, END, out, o, z)
    if code == 4:
        if n - p < 6:
            return p, -2
        o = put_member(buf, p, 2, texts, CLIENT, out, o, z)
        o = put_member(buf, p + 2, 2, texts, CONNECTION, out, o, z)
        o = put_member(buf, p + 4, 2, texts, SERVER, out, o, z)
        return p + 6, put_label(texts, END, out, o, z)
    if code == 5 or code == 6:
        if n - p < 1 or n - p - 1 < buf[p]:
            return p, -2
        end = p + 1 + buf[p]
        return end, put_any_text(buf, p + 1, end, out, o, z)
    if code == 12:
        return put_databases(buf, p, n, out, o, z)
    if code == 131:
        return put_collations(buf, p, n, out, o, z)
    return p, -2


@kernel(put_label, put_variable)
def put_variables(buf: UInt8s, p: int, n: int, texts: UInt8s, out: MutableUInt8s, o: int, z: int) -> int:
    """Write the status variables as a JSON object; -2 for unknown or duplicate variables."""
    seen = 0
    if z - o < 2:
        return -1
    out[o] = 123
    o += 1
    while p < n:
        code = buf[p] + 0
        bit = 1 << (code & 31) << (code >> 7) * 32
        if (code > 31 and code < 128) or code > 131 or seen & bit:
            return -2
        if seen != 0:
            if z - o < 1:
                return -1
            out[o] = 44
            o += 1
        seen |= bit
        o = put_label(texts, code, out, o, z)
        if o < 0:
            return o
        p, o = put_variable(buf, p + 1, n, code, texts, out, o, z)
        if o < 0:
            return o
    if z - o < 1:
        return -1
    out[o] = 125
    return o + 1
