"""Walk ROWS events and write their rows and values as JSON, as kernels.

They return the new output position; -1 if the output buffer is full, -2 if the general Python writer must take over.
"""

from __future__ import annotations

from typing import NamedTuple

from binlogtool.format_api.json_text_kernels import (
    write_entry_of_text_table,
    write_json_bytes,
    write_json_control_escape,
    write_json_double,
    write_json_text_or_bytes,
    write_json_unsigned,
)
from binlogtool.format_api.schema_fields import (
    MutableUInt8s,
    UInt8s,
    bind_sink,
    kernel,
    load_little_endian,
)
from binlogtool.formats.binlog_events.rows.annotate_row_events import load_rows_head_v1, load_rows_head_v2
from binlogtool.formats.binlog_events.rows.table_map import COLUMN_SIZE, RECORD_HEAD
from binlogtool.formats.binlog_events.values.decode_value_to_sink_kernels import UNSUPPORTED, decode_value_to_sink
from binlogtool.formats.binlog_events.values.number_and_date_text_kernels import (
    TextValueSink,
    write_float_text,
    write_quote_if_any,
)
from binlogtool.formats.binlog_events.wire_format import (
    DELETE_ROWS_V1,
    DELETE_ROWS_V2,
    INSERTED,
    UPDATED,
    VERSION_OFFSET,
    WRITE_ROWS_V1,
    WRITE_ROWS_V2,
)

# ruff: noqa: D102 - `values.decode_value_to_sink_kernels.ValueSink` describes the methods of sinks

# --- Buffers of the kernels for one event ---


class RowKernelBuffers(NamedTuple):
    """Buffers that the kernels read and write for the rows of one event.

    buf: bytes of the event; n: end of its rows. texts: constant texts and records of tables; r: start of this table's
    record. out: the text; z: end of its space.
    """

    buf: UInt8s
    n: int
    texts: UInt8s
    r: int
    out: MutableUInt8s
    z: int


# --- Kernels that write values as JSON ---

# -- texts -------------------------------------------------------------------------------------------------------------


@kernel()
def load_word(texts: UInt8s, pos: int) -> int:
    """Load a big-endian number of four bytes."""
    return texts[pos] << 24 | texts[pos + 1] << 16 | texts[pos + 2] << 8 | texts[pos + 3]


@kernel()
def copy_text(texts: UInt8s, pos: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Copy `size` bytes in steps of eight; reads and writes up to seven bytes more, so both buffers need the space."""
    copied = 0
    while copied < size:
        word = (
            texts[pos + copied]
            | texts[pos + copied + 1] << 8
            | texts[pos + copied + 2] << 16
            | texts[pos + copied + 3] << 24
        )
        high_word = (
            texts[pos + copied + 4]
            | texts[pos + copied + 5] << 8
            | texts[pos + copied + 6] << 16
            | texts[pos + copied + 7] << 24
        )
        word |= high_word << 32
        for i in range(8):
            out[out_pos + copied + i] = (word >> 8 * i) & 255
        copied += 8
    return out_pos + size


# -- values ---------------------------------------------------------------------------------------------------------

_QUOTE = 34
VALUE_SPACE = 136
"""Bytes that every value has at least as space; text and bytes, which may be longer, check theirs."""


class JsonValueSink(TextValueSink):
    """The sink of a value as JSON (`values.decode_value_to_sink_kernels.ValueSink`)."""

    write_bits = TextValueSink.write_unsigned

    @kernel(write_float_text)
    def write_float(self, bits: int, out_pos: int) -> int:
        return write_float_text(bits, self.out, out_pos, self.z)

    @kernel(write_json_double)
    def write_double(self, bits: int, out_pos: int) -> int:
        return write_json_double(bits, self.out, out_pos, self.z)

    @kernel(TextValueSink.begin_decimal, write_quote_if_any)
    def begin_decimal(self, is_negative: bool, out_pos: int) -> int:
        return TextValueSink.begin_decimal(self, is_negative, write_quote_if_any(self.quote, self.out, out_pos))

    @kernel(TextValueSink.end_decimal, write_quote_if_any)
    def end_decimal(self, is_negative: bool, number_start: int, out_pos: int) -> int:
        return write_quote_if_any(
            self.quote, self.out, TextValueSink.end_decimal(self, is_negative, number_start, out_pos)
        )

    @kernel(write_entry_of_text_table, write_json_unsigned, load_word)
    def write_enum(self, ordinal: int, out_pos: int) -> int:
        """Write the text, or the number if it has no text."""
        if self.base < 0 or ordinal < 0 or ordinal > load_word(self.texts, self.base):
            return write_json_unsigned(ordinal, self.out, out_pos, self.z)
        if ordinal == 0:
            self.out[out_pos] = _QUOTE
            self.out[out_pos + 1] = _QUOTE
            return out_pos + 2
        return write_entry_of_text_table(self.texts, self.base, ordinal - 1, self.out, out_pos, self.z)

    @kernel(write_entry_of_text_table, write_json_unsigned, load_word)
    def write_set(self, mask: int, out_pos: int) -> int:
        """Write the texts as an array, or the mask if a bit has no text."""
        count = load_word(self.texts, self.base) if self.base >= 0 else 0
        if self.base < 0 or (count < 64 and (mask < 0 or mask >> count != 0)):
            return write_json_unsigned(mask, self.out, out_pos, self.z)
        separator = 91
        if mask == 0:
            self.out[out_pos] = 91
            out_pos += 1
        for i in range(64):
            if mask >> i & 1:
                self.out[out_pos] = separator
                separator = 44
                out_pos = write_entry_of_text_table(self.texts, self.base, i, self.out, out_pos + 1, self.z)
                if out_pos < 0:
                    return out_pos
                if self.z - out_pos < 8:
                    return -1
        self.out[out_pos] = 93
        return out_pos + 1

    @kernel(write_json_text_or_bytes)
    def write_utf8(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int:
        return write_json_text_or_bytes(buf, pos, limit, self.out, out_pos, self.z)

    @kernel(write_json_control_escape)
    def write_single_byte_text(self, buf: UInt8s, pos: int, limit: int, highest_unicode_byte: int, out_pos: int) -> int:
        if self.z - out_pos < 6 * (limit - pos) + 2:
            return -1
        self.out[out_pos] = _QUOTE
        out_pos += 1
        while pos < limit:
            byte = buf[pos] + 0
            pos += 1
            if byte > highest_unicode_byte or (byte >= 0x7F and byte < 0xA0):
                return UNSUPPORTED
            if byte < 0x20:
                out_pos = write_json_control_escape(byte, self.out, out_pos)
                continue
            if byte == _QUOTE or byte == 0x5C:
                self.out[out_pos] = 92
                out_pos += 1
            if byte >= 0x80:
                self.out[out_pos] = 0xC0 | byte >> 6
                out_pos += 1
                byte = 0x80 | byte & 0x3F
            self.out[out_pos] = byte
            out_pos += 1
        self.out[out_pos] = _QUOTE
        return out_pos + 1

    @kernel(write_json_bytes)
    def write_bytes(self, buf: UInt8s, pos: int, limit: int, padded_width: int, out_pos: int) -> int:
        return write_json_bytes(buf, pos, limit, self.out, out_pos, self.z)

    @kernel()
    def write_geometry(self, buf: UInt8s, pos: int, limit: int, out_pos: int) -> int:
        return UNSUPPORTED


write_json_value = bind_sink(decode_value_to_sink, JsonValueSink, inline=True)
"""Write the value `buf[pos:limit]` as JSON."""


# --- Kernels that find the bounds of values ---


@kernel(load_little_endian)
def find_value_bounds(buf: UInt8s, pos: int, limit: int, fixed_bytes: int, length_prefix_bytes: int) -> tuple[int, int]:
    """Find the start and end of the value at `buf[pos]`.

    Args:
        limit: end of the readable bytes.
        fixed_bytes: size of a value of fixed width; used if `length_prefix_bytes` is 0.
        length_prefix_bytes: size in bytes of the little-endian length before the value.

    Returns:
        (start, end) of the value; the end is -2 if it does not fit.
    """
    if length_prefix_bytes > limit - pos:
        return pos, -2
    size = load_little_endian(buf, pos, length_prefix_bytes) if length_prefix_bytes > 0 else fixed_bytes
    pos += length_prefix_bytes
    if size > limit - pos:
        return pos, -2
    return pos, pos + size


# --- Heads of row events ---


@kernel()
def count_present_columns(buf: UInt8s, bitmap_at: int, column_count: int) -> int:
    """Count the set bits among the first `column_count` bits of the bitmap at `buf[bitmap_at]`."""
    total = 0
    for i in range(column_count):
        total += buf[bitmap_at + (i >> 3)] >> (i & 7) & 1
    return total


@kernel(load_rows_head_v1, load_rows_head_v2)
def read_rows_head(buf: UInt8s, pos: int, limit: int, has_extra_data: bool) -> tuple[int, int, int, int]:
    """Read the head of a row event from its flags at `buf[pos]` on.

    Returns:
        (flags, bytes of extra data with their length, number of columns, offset of their first bitmap); the number is
        -1 if the head does not fit.
    """
    extra = 0
    if has_extra_data:
        flags, extra, columns, bitmaps, end = load_rows_head_v2(buf, pos, limit)
    else:
        flags, columns, bitmaps, end = load_rows_head_v1(buf, pos, limit)
    return flags, extra, columns if end >= 0 else -1, bitmaps


@kernel(read_rows_head)
def find_row_images(
    buf: UInt8s, pos: int, limit: int, type_code: int, column_count: int
) -> tuple[int, int, int, int, int]:
    """Find the images of an uncompressed row event with its flags at `buf[pos]`.

    Returns:
        (flags, bytes of extra data with their length, position of the first and of the last bitmap, position of the
        images); the last is -2 if the event has other columns or no rows.
    """
    flags, extra, count, before = read_rows_head(buf, pos, limit, type_code >= WRITE_ROWS_V2)
    size = (column_count + 7) >> 3
    after = before + size if (type_code - WRITE_ROWS_V1) % VERSION_OFFSET == UPDATED else before
    return flags, extra, before, after, -2 if count != column_count or after + size >= limit else after + size


class ImageBitmaps(NamedTuple):
    """Bitmaps of the images of an event's rows.

    kind: INSERTED, UPDATED or DELETED. before, after: positions of the bitmaps of present columns, both the same for an
    event with one bitmap. befores, afters: numbers of columns present.
    """

    kind: int
    before: int
    befores: int
    after: int
    afters: int


# --- Kernels for row images ---


@kernel(find_value_bounds, load_word, inline=True)
def find_column_value(
    buf: UInt8s, pos: int, limit: int, null_bits_at: int, present_position: int, texts: UInt8s, entry_at: int
) -> tuple[int, int, int]:
    """Find the value at `buf[pos]` of a column of an image.

    Args:
        null_bits_at: position of the image's bitmap of NULLs.
        present_position: number of the column among those present.
        entry_at: position of the column's entry in `texts`.

    Returns:
        (1 if it is NULL, else 0; start and end of the value); the end is -2 if it does not fit.
    """
    if buf[null_bits_at + (present_position >> 3)] >> (present_position & 7) & 1:
        return 1, pos, pos
    start, end = find_value_bounds(buf, pos, limit, load_word(texts, entry_at + 8), load_word(texts, entry_at + 12))
    return 0, start, end


@kernel(load_word)
def find_table_template(texts: UInt8s, table_at: int, map_number: int) -> int:
    """Return the offset of the template of a TABLE_MAP; 0 if it has no template.

    Args:
        table_at: offset of the table of templates.
    """
    relative = load_word(texts, table_at + 8 + 4 * map_number) if map_number >= 0 else 0
    return table_at + relative if relative > 0 else 0


@kernel(find_column_value, load_word)
def find_image_end(
    buf: UInt8s,
    pos: int,
    limit: int,
    rows_head: UInt8s,
    bitmap_at: int,
    present_count: int,
    texts: UInt8s,
    template_at: int,
) -> int:
    """Return the offset after an image whose bitmap of present columns is `head[bitmap_at:]`; -2 if it does not fit."""
    nulls = pos
    pos += (present_count + 7) >> 3
    if pos > limit:
        return -2
    column = template_at + RECORD_HEAD
    place = 0
    for i in range(load_word(texts, template_at)):
        if rows_head[bitmap_at + (i >> 3)] >> (i & 7) & 1:
            _is_null, _start, pos = find_column_value(buf, pos, limit, nulls, place, texts, column)
            if pos < 0:
                return -2
            place += 1
        column += COLUMN_SIZE
    return pos


@kernel(count_present_columns, load_word, find_image_end)
def count_image_rows(
    buf: UInt8s,
    pos: int,
    limit: int,
    rows_head: UInt8s,
    first_bitmap_at: int,
    last_bitmap_at: int,
    texts: UInt8s,
    template_at: int,
) -> int:
    """Count the rows in `buf[pos:limit]`; -2 if they do not fit the template at `texts[template_at]`.

    Args:
        rows_head: the event's head; the bitmaps of its first and its last image are at `first_bitmap_at` and
            `last_bitmap_at`, which are equal if a row has one image.
    """
    columns = load_word(texts, template_at)
    befores = count_present_columns(rows_head, first_bitmap_at, columns)
    afters = count_present_columns(rows_head, last_bitmap_at, columns)
    rows = 0
    while pos < limit:
        start = pos
        pos = find_image_end(buf, pos, limit, rows_head, first_bitmap_at, befores, texts, template_at)
        if pos >= 0 and last_bitmap_at > first_bitmap_at:
            pos = find_image_end(buf, pos, limit, rows_head, last_bitmap_at, afters, texts, template_at)
        if pos <= start:
            return -2
        rows += 1
    return rows


@kernel(count_image_rows, find_row_images, load_word)
def has_valid_images(
    buf: UInt8s, pos: int, limit: int, type_code: int, texts: UInt8s, template_at: int, table_id_size: int
) -> bool:
    """Return whether `buf[pos:limit]` is the body of a row event whose rows fit the template at
    `texts[template_at]`.
    """
    if type_code > DELETE_ROWS_V2 or (type_code > DELETE_ROWS_V1 and type_code < WRITE_ROWS_V2):
        return False
    columns = load_word(texts, template_at)
    _flags, _extra, before, after, images = find_row_images(buf, pos + table_id_size, limit, type_code, columns)
    return images >= 0 and count_image_rows(buf, images, limit, buf, before, after, texts, template_at) >= 0


# --- Kernels that write row events as JSON ---


@kernel()
def write_packed_text(packed: int, size: int, out: MutableUInt8s, out_pos: int) -> int:
    """Write up to eight characters packed into an integer, the first one in the lowest byte.

    Always writes eight bytes; returns the position after the first `size`.
    """
    for i in range(8):
        out[out_pos + i] = (packed >> 8 * i) & 255
    return out_pos + size


@kernel(find_column_value, copy_text, write_packed_text, write_json_value, load_word)
def write_json_row_image(
    memory: RowKernelBuffers, pos: int, bitmap_at: int, present_count: int, out_pos: int
) -> tuple[int, int]:
    """Write the row image at `buf[pos]` as a JSON object.

    Columns whose key has no text are omitted; columns of kind 0 are not even read.

    Args:
        bitmap_at: position of the bitmap of the present columns.
        present_count: number of columns present.

    Returns:
        (end of the image, end of the output or an error).
    """
    nulls = pos
    pos += (present_count + 7) >> 3
    if pos > memory.n:
        return pos, -2
    if memory.z - out_pos < 16:
        return pos, -1
    memory.out[out_pos] = 123
    out_pos += 1
    column = memory.r + RECORD_HEAD
    place = 0
    members = 0
    for i in range(load_word(memory.texts, memory.r)):
        if memory.buf[bitmap_at + (i >> 3)] >> (i & 7) & 1:
            size = load_word(memory.texts, column + 20)
            is_null, start, pos = find_column_value(memory.buf, pos, memory.n, nulls, place, memory.texts, column)
            if pos < 0:
                return start, -2
            if memory.z - out_pos < size + VALUE_SPACE:
                return pos, -1
            place += 1
            member = out_pos
            if size > 0:
                first = 1 if members == 0 else 0
                name = memory.r + load_word(memory.texts, column + 16) + first
                out_pos = copy_text(memory.texts, name, size - first, memory.out, out_pos)
                members += 1
            kind = load_word(memory.texts, column)
            if is_null:
                out_pos = write_packed_text(0x6C6C756E, 4, memory.out, out_pos)
            elif kind > 0 or size > 0:
                base = load_word(memory.texts, column + 24)
                base = base + memory.r if base > 0 else -1
                out_pos = write_json_value(
                    memory.buf,
                    start,
                    pos,
                    kind,
                    load_word(memory.texts, column + 4),
                    JsonValueSink(_QUOTE, memory.texts, base, 0, memory.out, memory.z),
                    out_pos,
                )
                if out_pos < 0:
                    return pos, out_pos
            if size == 0:
                out_pos = member
        column += COLUMN_SIZE
    if memory.z - out_pos < 16:
        return pos, -1
    memory.out[out_pos] = 125
    return pos, out_pos + 1


@kernel(write_json_row_image, write_packed_text)
def write_json_row(memory: RowKernelBuffers, pos: int, images: ImageBitmaps, out_pos: int) -> tuple[int, int]:
    """Write one row as a JSON object with its images; return (end of the images, end of the output or an error)."""
    if memory.z - out_pos < 64:
        return pos, -1
    memory.out[out_pos] = 123
    out_pos += 1
    if images.kind != INSERTED:
        memory.out[out_pos] = 34
        out_pos = write_packed_text(0x3A2265726F666562, 8, memory.out, out_pos + 1)
        pos, out_pos = write_json_row_image(memory, pos, images.before, images.befores, out_pos)
        if out_pos < 0:
            return pos, out_pos
        if memory.z - out_pos < 64:
            return pos, -1
        if images.kind == UPDATED:
            memory.out[out_pos] = 44
            out_pos += 1
    if images.kind <= UPDATED:
        out_pos = write_packed_text(0x3A22726574666122, 8, memory.out, out_pos)
        pos, out_pos = write_json_row_image(memory, pos, images.after, images.afters, out_pos)
        if out_pos < 0:
            return pos, out_pos
    if memory.z - out_pos < 16:
        return pos, -1
    memory.out[out_pos] = 125
    return pos, out_pos + 1


@kernel(write_json_row)
def write_json_rows(memory: RowKernelBuffers, pos: int, images: ImageBitmaps, out_pos: int) -> int:
    """Write all rows up to the end of the event, separated by commas; return the end of the output, -1 = full, -2 =
    invalid.
    """
    start = pos
    while pos < memory.n:
        if pos > start:
            if memory.z - out_pos < 1:
                return -1
            memory.out[out_pos] = 44
            out_pos += 1
        row_end, out_pos = write_json_row(memory, pos, images, out_pos)
        if out_pos < 0:
            return out_pos
        if row_end == pos:
            return -2
        pos = row_end
    return out_pos


@kernel(
    copy_text,
    count_present_columns,
    find_row_images,
    load_word,
    write_json_rows,
    write_packed_text,
    write_json_unsigned,
)
def write_json_rows_event(
    buf: UInt8s, pos: int, limit: int, type_code: int, texts: UInt8s, map_record_offset: int, out: MutableUInt8s,
    out_pos: int,
    out_limit: int
) -> int:  # fmt: skip
    """Write the body of a WRITE_ROWS, UPDATE_ROWS or DELETE_ROWS event as JSON.

    Version 1, or version 2 without extra data.

    Args:
        type_code: type code of the event.
        texts: the table of maps.
        map_record_offset: position of the record of the event's table map.
    """
    columns = load_word(texts, map_record_offset)
    flags, extra, before, after, images = find_row_images(
        buf, pos + load_word(texts, map_record_offset + 4), limit, type_code, columns
    )
    if images < 0 or extra > 2:
        return -2
    title = load_word(texts, map_record_offset + 28)
    names = load_word(texts, map_record_offset + 36)
    if out_limit - out_pos < title + names + 64:
        return -1
    out_pos = copy_text(texts, map_record_offset + load_word(texts, map_record_offset + 24), title, out, out_pos)
    out_pos = write_json_unsigned(flags, out, out_pos, out_limit)
    out_pos = copy_text(texts, map_record_offset + load_word(texts, map_record_offset + 32), names, out, out_pos)
    befores = count_present_columns(buf, before, columns)
    afters = count_present_columns(buf, after, columns)
    out_pos = write_json_rows(
        RowKernelBuffers(buf, limit, texts, map_record_offset, out, out_limit),
        images,
        ImageBitmaps((type_code - WRITE_ROWS_V1) % VERSION_OFFSET, before, befores, after, afters),
        out_pos,
    )
    if out_pos < 0:
        return out_pos
    if out_limit - out_pos < 16:
        return -1
    return write_packed_text(0x7D5D, 2, out, out_pos)


# --- Template of a table whose rows are written as events ---

GENERATED, KEY, CAST, HEX, NO_CONDITION, NUMBER, STAMPED = 1, 2, 4, 8, 16, 32, 64
"""Flags of a column in a template. GENERATED: statements must not name it. KEY: it is part of the primary key. CAST: a
condition outside the key compares its bytes; HEX: as X'…'. NO_CONDITION: no condition is possible. NUMBER: a condition
compares its number. STAMPED: an UPDATE that does not name it may set it to the current time."""
