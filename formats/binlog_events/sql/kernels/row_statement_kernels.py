"""Write row events as statements or BINLOG, in compiled kernels.

The text is the same as that of `sql.row_statements`. An event with an unsupported value is left to the general writer.
"""

from __future__ import annotations

from binlogtool.format_api.layout import compute_crc32
from binlogtool.format_api.schema_fields import (
    Int64s,
    MutableInt64s,
    MutableUInt8s,
    UInt8s,
    are_bytes_equal,
    kernel,
    load_little_endian,
)
from binlogtool.formats.binlog_events.rows.table_map import COLUMN_SIZE, MAX_COLUMNS, RECORD_HEAD
from binlogtool.formats.binlog_events.rows.write_rows_json_kernels import (
    CAST,
    GENERATED,
    HEX,
    KEY,
    NO_CONDITION,
    NUMBER,
    STAMPED,
    ImageBitmaps,
    RowKernelBuffers,
    copy_text,
    count_present_columns,
    find_column_value,
    find_image_end,
    find_row_images,
    find_table_template,
    has_valid_images,
    load_word,
    read_rows_head,
    write_packed_text,
)
from binlogtool.formats.binlog_events.sql.format_literals import (
    SQL_QUOTE,
    SqlValueSink,
    write_hex_literal,
    write_sql_literal,
)
from binlogtool.formats.binlog_events.sql.kernels.event_script_kernels import (
    BINLOG,
    BYTES_WRITTEN,
    CHECKSUM_BYTES,
    CLOSE,
    CONTAINER_OFFSET,
    IN_TRANSACTION,
    LAST_GTID_INDEX,
    MAX_BINLOG_BYTES,
    NEXT_SESSION_NUMBER,
    OUTPUT_FULL,
    ROW_FLAG_MASK,
    ROWS_AS_STATEMENTS,
    SESSION_CHANGED,
    SESSION_NUMBER,
    TABLE_ID_SIZE,
    TEMPLATES,
    TEXTS_END,
    TIMESTAMP_US,
    TRANSACTION_STATE,
    copy_bytes_unchanged,
    find_last_event_of_statement,
    find_rows_session_request,
    find_session_transition,
    find_statement_after_variables,
    has_matching_rows,
    is_uncompressed_row_event,
    pack_text_positions,
    write_base64_line,
    write_change_statement,
    write_constant_text,
    write_event_type_name,
    write_position_comment,
    write_session_before_rows,
    write_statement_as_binlog,
    write_transaction_event,
)
from binlogtool.formats.binlog_events.sql.kernels.script_kernel_structs import EventColumns, EventSpans, ScriptMemory
from binlogtool.formats.binlog_events.values.column_types import ValueKind
from binlogtool.formats.binlog_events.wire_format import (
    COMPRESSED_V1_OFFSET,
    COMPRESSED_V2_OFFSET,
    DELETE_COMPRESSED_V2,
    EVENT_SIZE_AT,
    INSERTED,
    INTVAR,
    PARTIAL_UPDATE_ROWS,
    QUERY,
    RAND,
    ROW_KINDS,
    TABLE_MAP,
    TRANSACTION_PAYLOAD,
    TYPE_AT,
    UPDATED,
    VERSION_OFFSET,
    WRITE_COMPRESSED_V1,
    WRITE_COMPRESSED_V2,
    WRITE_ROWS_V1,
    load_compressed_block_head,
)

# --- Row events as kernels ---


@kernel(compute_crc32)
def write_checksum_if_any(checksum_size: int, out: MutableUInt8s, out_pos: int, event_at: int) -> int:
    """Write the checksum of the event `out[p:out_pos]`, if events have one."""
    if checksum_size > 0:
        crc = compute_crc32(out, event_at, out_pos)
        for i in range(4):
            out[out_pos + i] = crc >> 8 * i & 255
    return out_pos + checksum_size


@kernel(copy_text, write_checksum_if_any, load_word)
def write_table_map_of_template(
    header_at: int, buf: UInt8s, texts: UInt8s, template_at: int, out: MutableUInt8s, out_pos: int, checksum_size: int
) -> int:
    """Write the TABLE_MAP of a template, with time and origin of the event whose header is at `buf[header_at]`."""
    length = load_word(texts, template_at + 20)
    size = 19 + length + checksum_size
    for i in range(19):
        out[out_pos + i] = buf[header_at + i] + 0
    out[out_pos + TYPE_AT] = TABLE_MAP
    for i in range(4):
        out[out_pos + EVENT_SIZE_AT + i] = size >> 8 * i & 255
    end = copy_text(texts, template_at + load_word(texts, template_at + 16), length, out, out_pos + 19)
    return write_checksum_if_any(checksum_size, out, end, out_pos)


@kernel(write_checksum_if_any)
def write_event_with_statement_end(
    pos: int, limit: int, flags_at: int, buf: UInt8s, out: MutableUInt8s, out_pos: int, checksum_size: int
) -> int:
    """Write the row event `buf[pos:limit]` with the STMT_END flag; `flags_at`: offset of the event's flags."""
    for i in range(limit - pos - checksum_size):
        out[out_pos + i] = buf[pos + i] + 0
    out[out_pos + flags_at - pos] = buf[flags_at] | 1
    return write_checksum_if_any(checksum_size, out, out_pos + limit - pos - checksum_size, out_pos)


@kernel(
    write_constant_text,
    has_valid_images,
    write_base64_line,
    write_event_with_statement_end,
    write_table_map_of_template,
    load_word,
)
def write_row_event_as_binlog(
    pos: int, body_start: int, limit: int, type_code: int, memory: ScriptMemory, template_at: int, out_pos: int
) -> int:
    """Write the row event `buf[pos:limit]` after its TABLE_MAP as one BINLOG statement.

    Events are assembled at the end of the output buffer before they are encoded.

    Args:
        body_start: offset of the event's body.

    Returns:
        The end offset; -1 if the buffer is too small, -2 if the event does not fit its table.
    """
    checksum_size = memory.state[CHECKSUM_BYTES] + 0
    if limit - checksum_size - body_start < memory.state[TABLE_ID_SIZE] + 2 or not has_valid_images(
        memory.buf,
        body_start,
        limit - checksum_size,
        type_code,
        memory.texts,
        template_at,
        memory.state[TABLE_ID_SIZE] + 0,
    ):
        return -2
    event = limit - pos
    table = 19 + load_word(memory.texts, template_at + 20) + checksum_size
    if memory.z - out_pos < (event + table) // 3 * 4 + event + table + 256:
        return -1
    out_pos = write_constant_text(BINLOG, memory.texts, memory.out, out_pos)
    at = memory.z - table - 16
    write_table_map_of_template(pos, memory.buf, memory.texts, template_at, memory.out, at, checksum_size)
    out_pos = write_base64_line(memory.out, at, at + table, memory.out, out_pos)
    flags = body_start + memory.state[TABLE_ID_SIZE]
    if memory.buf[flags] & 1:
        out_pos = write_base64_line(memory.buf, pos, limit, memory.out, out_pos)
    else:
        at = memory.z - event - 16
        write_event_with_statement_end(pos, limit, flags, memory.buf, memory.out, at, checksum_size)
        out_pos = write_base64_line(memory.out, at, at + event, memory.out, out_pos)
    return write_constant_text(CLOSE, memory.texts, memory.out, out_pos)


@kernel(copy_bytes_unchanged, write_checksum_if_any)
def write_event_with_checksum(
    buf: UInt8s, event_at: int, size: int, out: MutableUInt8s, out_pos: int, checksum_size: int
) -> int:
    """Write the event of `size` bytes at `buf[event_at]`, which has no checksum, with a checksum of `checksum_size`
    bytes.
    """
    copy_bytes_unchanged(buf, event_at, event_at + size, out, out_pos)
    for k in range(4):
        out[out_pos + EVENT_SIZE_AT + k] = size + checksum_size >> 8 * k & 255
    return write_checksum_if_any(checksum_size, out, out_pos + size, out_pos)


@kernel(copy_bytes_unchanged, write_event_with_checksum)
def concatenate_events(
    count: int,
    spans: EventSpans,
    holders: Int64s,
    bases: Int64s,
    buf: UInt8s,
    out: MutableUInt8s,
    checksum_size: int,
) -> int:
    """Copy events one after the other to `out`, and set the columns to their offsets in `out`.

    Nested events get checksums of `checksum_size` bytes; the events that contain them become empty.

    Args:
        bases: number to add to an event's offset to get its position in `buf`.

    Returns:
        The number of events; copying stops at an invalid event.
    """
    o = 0
    for i in range(count):
        p = spans.offsets[i] + bases[i]
        size = spans.stops[i] - spans.offsets[i]
        body = spans.starts[i] - spans.offsets[i]
        body_end = spans.ends[i] - spans.offsets[i]
        if size < 19 or body != 19 or body_end < body or size < body_end:
            return i
        spans.offsets[i] = o
        spans.starts[i] = o + body
        spans.ends[i] = o + body_end
        if holders[i] >= 0:
            if body_end != size:
                return i
            o = write_event_with_checksum(buf, p, size, out, o, checksum_size)
        elif spans.codes[i] == TRANSACTION_PAYLOAD:
            spans.starts[i] = o
            spans.ends[i] = o
        else:
            o = copy_bytes_unchanged(buf, p, p + size, out, o)
        spans.stops[i] = o
    return count


@kernel(load_little_endian)
def is_table_id_of_statement(
    buf: UInt8s, table_id_at: int, table_id_size: int, statement_table_ids: Int64s, count: int
) -> bool:
    """Return whether the table id at `buf[table_id_at]` belongs to the statement."""
    number = load_little_endian(buf, table_id_at, table_id_size)
    is_found = 0
    for i in range(count):
        is_found |= 1 if statement_table_ids[i] == number else 0
    return is_found > 0


@kernel(is_table_id_of_statement, is_uncompressed_row_event, has_matching_rows, write_base64_line)
def write_continuing_rows_as_base64(
    event_index: int,
    stop: int,
    spans: EventSpans,
    map_numbers: Int64s,
    memory: ScriptMemory,
    statement_table_ids: Int64s,
    count: int,
    statement_bytes: int,
) -> int:
    """Write the row events from `event_index` on that continue the statement in base64, except the last of them.

    Args:
        statement_bytes: size of the statement so far in bytes.

    Returns:
        The index after the last event.
    """
    first = event_index
    done = 0
    while (
        event_index < stop
        and is_uncompressed_row_event(spans.codes[event_index])
        and spans.stops[event_index] - spans.ends[event_index] == memory.state[CHECKSUM_BYTES]
        and spans.ends[event_index] - spans.starts[event_index] >= 10
    ):
        statement_bytes += spans.stops[event_index] - spans.offsets[event_index]
        if (
            statement_bytes > MAX_BINLOG_BYTES
            or memory.buf[spans.starts[event_index] + memory.state[TABLE_ID_SIZE]] & 1
            or not is_table_id_of_statement(
                memory.buf, spans.starts[event_index], memory.state[TABLE_ID_SIZE], statement_table_ids, count
            )
            or not has_matching_rows(
                spans.codes[event_index],
                spans.starts[event_index],
                spans.ends[event_index],
                map_numbers[event_index],
                memory.buf,
                memory.texts,
                memory.state,
            )
        ):
            break
        if event_index > first:
            if memory.z - done < (spans.stops[event_index - 1] - spans.offsets[event_index - 1]) // 3 * 4 + 64:
                break
            done = write_base64_line(
                memory.buf, spans.offsets[event_index - 1], spans.stops[event_index - 1], memory.out, done
            )
        event_index += 1
    memory.state[BYTES_WRITTEN] = done
    return event_index


# --- MariaDB's compressed row events, as kernels ---


@kernel(read_rows_head)
def find_compressed_block(buf: UInt8s, pos: int, limit: int, type_code: int, table_id_size: int) -> int:
    """Return the position of the compressed block in the row event body `buf[pos:limit]`; -1: malformed header."""
    _flags, _extra, columns, pos = read_rows_head(buf, pos + table_id_size, limit, type_code >= WRITE_COMPRESSED_V2)
    if columns < 0 or columns > MAX_COLUMNS:
        return -1
    size = (columns + 7) >> 3
    pos += 2 * size if (type_code - WRITE_COMPRESSED_V1) % ROW_KINDS == UPDATED else size
    return pos if pos < limit else -1


@kernel(find_compressed_block, load_compressed_block_head)
def find_compressed_blocks(
    count: int,
    spans: EventSpans,
    buf: UInt8s,
    table_id_size: int,
    checksum_size: int,
    max_size: int,
    data_offsets: MutableInt64s,
    sizes: MutableInt64s,
) -> int:
    """Store offset and unpacked size of each compressed row event's data in two columns; return how many there are.

    The size is -1 for all other events, for malformed ones, and for those larger than `max_size`.

    Returns:
        The number of compressed events.
    """
    found = 0
    for i in range(count):
        code = spans.codes[i]
        sizes[i] = -1
        if (
            code < WRITE_COMPRESSED_V1
            or code > DELETE_COMPRESSED_V2
            or spans.stops[i] - spans.ends[i] != checksum_size
            or spans.starts[i] - spans.offsets[i] != 19
        ):
            continue
        n = spans.ends[i] + 0
        p = find_compressed_block(buf, spans.starts[i] + 0, n, code, table_id_size)
        size, data = load_compressed_block_head(buf, p, n) if p >= 0 else (0, -2)
        if data >= 0 and size <= max_size:
            data_offsets[i] = data
            sizes[i] = size
            found += 1
    return found


@kernel(find_compressed_block, write_checksum_if_any, copy_bytes_unchanged)
def write_uncompressed_events(
    count: int,
    spans: EventSpans,
    sizes: Int64s,
    buf: UInt8s,
    data: UInt8s,
    table_id_size: int,
    checksum_size: int,
    out: MutableUInt8s,
    out_pos: int,
) -> int:
    """Write the events of `find_compressed_blocks` in uncompressed form from `out[out_pos]` on, and update the columns.

    Args:
        data: the uncompressed blocks.

    Returns:
        The end offset in `out`.
    """
    d = 0
    for i in range(count):
        if sizes[i] >= 0:
            code = spans.codes[i] + 0
            at = spans.offsets[i] + 0
            block = find_compressed_block(buf, spans.starts[i] + 0, spans.ends[i] + 0, code, table_id_size)
            code -= COMPRESSED_V2_OFFSET if code >= WRITE_COMPRESSED_V2 else COMPRESSED_V1_OFFSET
            end = copy_bytes_unchanged(data, d, d + sizes[i], out, copy_bytes_unchanged(buf, at, block, out, out_pos))
            out[out_pos + TYPE_AT] = code
            for k in range(4):
                out[out_pos + EVENT_SIZE_AT + k] = end + checksum_size - out_pos >> 8 * k & 255
            spans.codes[i] = code
            spans.offsets[i] = out_pos
            spans.starts[i] = out_pos + 19
            spans.ends[i] = end
            d += sizes[i]
            out_pos = write_checksum_if_any(checksum_size, out, end, out_pos)
            spans.stops[i] = out_pos
    return out_pos


# --- Kernels for INSERT, UPDATE and DELETE ---

MAX_INSERT_BYTES = 256 << 10
"""Size of an INSERT in bytes after which a new INSERT is begun."""

_PIECES = (
    b"INSERT INTO ", b"UPDATE ", b"DELETE FROM ", b" SET ", b" WHERE ", b" LIMIT 1", b" VALUES\n", b"\n/*!*/;\n",
    b" AS BINARY) <=> ", b" <=> ", b" IS NULL", b" AND ", b"CAST(",
)  # fmt: skip
PIECES = b"".join(_PIECES)
"""Texts after those of `sql.kernels.statements` and before the table of templates."""
(
    _INSERT, _UPDATE, _DELETE, _SET, _WHERE, _LIMIT, _VALUES, _END, _AS_BINARY, _EQUAL, _IS_NULL, _AND, _CAST,
) = pack_text_positions(TEXTS_END, _PIECES)  # fmt: skip
TEMPLATES_AT = TEXTS_END + len(PIECES)
"""Offset of the table of templates in the texts of `write_script_events`."""

OPENING_BRACKET, COMMA = b"(,"
MAX_EVENT_TEXT = 4096
"""Space that an event needs in addition to its rows and statement, in bytes."""
_MAX_FIXED_VALUE = 1024
"""Maximum output size of a value in bytes; text and bytes need two more output bytes per byte of theirs."""


@kernel(load_word)
def has_all_key_columns(buf: UInt8s, bitmap_at: int, texts: UInt8s, template_at: int) -> int:
    """Return 1 if the table has a key and an image with this bitmap has all its columns, else 0."""
    count = 0
    entry = template_at + RECORD_HEAD
    for i in range(load_word(texts, template_at)):
        if load_word(texts, entry + 32) & KEY and buf[bitmap_at + (i >> 3)] >> (i & 7) & 1:
            count += 1
        entry += COLUMN_SIZE
    return 1 if count > 0 and count == load_word(texts, template_at + 12) else 0


@kernel(copy_text, load_word)
def write_column_name_list(
    buf: UInt8s, bitmap_at: int, texts: UInt8s, template_at: int, out: MutableUInt8s, out_pos: int, out_limit: int
) -> int:
    """Write, in parentheses, the names of the image's columns that statements may set."""
    separator = OPENING_BRACKET
    out[out_pos] = OPENING_BRACKET
    entry = template_at + RECORD_HEAD
    for i in range(load_word(texts, template_at)):
        if buf[bitmap_at + (i >> 3)] >> (i & 7) & 1 and not load_word(texts, entry + 32) & GENERATED:
            size = load_word(texts, entry + 20)
            if out_limit - out_pos < size + _MAX_FIXED_VALUE:
                return -1
            out[out_pos] = separator
            out_pos = copy_text(texts, template_at + load_word(texts, entry + 16), size, out, out_pos + 1)
            separator = COMMA
        entry += COLUMN_SIZE
    if separator == OPENING_BRACKET:
        out_pos += 1
    out[out_pos] = 41
    return out_pos + 1


@kernel(copy_text, load_word, write_constant_text)
def write_text_before_value(
    memory: RowKernelBuffers, previous_values: int, clause: int, is_null: int, cast: int, entry_at: int, out_pos: int
) -> int:
    """Write the text before a value that follows `previous_values` other values; for NULL write the whole condition.

    `clause`: 0 = VALUES, 1 = SET, 2 = WHERE.
    """
    if previous_values > 0:
        if clause == 2:
            out_pos = write_constant_text(_AND, memory.texts, memory.out, out_pos)
        else:
            memory.out[out_pos] = 44
            memory.out[out_pos + 1] = 32
            out_pos += 1 + clause
    if clause == 0:
        return out_pos
    if cast > 0:
        out_pos = write_constant_text(_CAST, memory.texts, memory.out, out_pos)
    name = memory.r + load_word(memory.texts, entry_at + 16)
    out_pos = copy_text(memory.texts, name, load_word(memory.texts, entry_at + 20), memory.out, out_pos)
    if clause == 1:
        memory.out[out_pos] = 61
        return out_pos + 1
    return write_constant_text(
        _IS_NULL if is_null > 0 else _AS_BINARY if cast > 0 else _EQUAL, memory.texts, memory.out, out_pos
    )


@kernel(write_hex_literal, write_sql_literal, load_word)
def write_column_value(memory: RowKernelBuffers, pos: int, clause: int, cast: int, entry_at: int, out_pos: int) -> int:
    """Write a non-NULL value of the column whose template entry is at `texts[entry_at]`."""
    kind = load_word(memory.texts, entry_at)
    flags = load_word(memory.texts, entry_at + 32)
    base = load_word(memory.texts, entry_at + 24)
    base = base + memory.r if base > 0 else -1
    if clause == 2 and flags & NO_CONDITION:
        return -2
    if clause == 2 and flags & NUMBER:
        kind = ValueKind.UNSIGNED
    end = write_sql_literal(
        memory.buf,
        pos,
        memory.n,
        kind,
        load_word(memory.texts, entry_at + 4),
        SqlValueSink(SQL_QUOTE, memory.texts, base, load_word(memory.texts, entry_at + 28), memory.out, memory.z),
        out_pos,
    )
    if end >= 0 and cast > 0 and flags & HEX:
        return write_hex_literal(memory.buf, pos, memory.n, 0, memory.out, out_pos)
    return end


@kernel(
    are_bytes_equal, find_column_value, copy_text, write_text_before_value, write_packed_text, write_column_value,
    load_word
)  # fmt: skip
def write_image_clause(
    memory: RowKernelBuffers, images: ImageBitmaps, before_image_at: int, pos: int, clause: int, uses_key: int,
    out_pos: int,
) -> tuple[int, int]:  # fmt: skip
    """Write the image at `buf[pos]`; return (offset after it, end of the output).

    An update only assigns changed columns; columns that a server could set by itself are assigned their current value.

    Args:
        before_image_at: position of the before image, with which an update compares.
        clause: 0 = VALUES, 1 = SET, 2 = WHERE.
        uses_key: whether conditions only use the key.
    """
    bitmap = images.before if clause == 2 else images.after
    old_nulls = before_image_at
    nulls = pos
    before_image_at += (images.befores + 7) >> 3
    pos += ((images.befores if clause == 2 else images.afters) + 7) >> 3
    if pos > memory.n:
        return pos, -2
    entry = memory.r + RECORD_HEAD
    old_place = 0
    place = 0
    count = 0
    changes = 0
    for i in range(load_word(memory.texts, memory.r)):
        flags = load_word(memory.texts, entry + 32)
        old_null = -1
        start = before_image_at
        if clause == 1 and memory.buf[images.before + (i >> 3)] >> (i & 7) & 1:
            old_null, start, before_image_at = find_column_value(
                memory.buf, before_image_at, memory.n, old_nulls, old_place, memory.texts, entry
            )
            if before_image_at < 0:
                return pos, -2
            old_place += 1
        changed = 0
        is_null = -1
        end = pos
        if memory.buf[bitmap + (i >> 3)] >> (i & 7) & 1:
            is_null, pos, end = find_column_value(memory.buf, pos, memory.n, nulls, place, memory.texts, entry)
            if end < 0:
                return pos, -2
            place += 1
            changed = 1
            if clause == 1 and is_null == old_null and before_image_at - start == end - pos:
                changed = 1 - are_bytes_equal(memory.buf, pos, memory.buf, start, end - pos)
        written = changed > 0 or (clause == 1 and flags & STAMPED != 0)
        if written and (flags & KEY != 0 if clause == 2 and uses_key > 0 else flags & GENERATED == 0):
            free = memory.z - out_pos - _MAX_FIXED_VALUE - load_word(memory.texts, entry + 28)
            if free < 2 * (end - pos) + 2 * load_word(memory.texts, entry + 20):
                return pos, -1
            cast = 1 if clause == 2 and uses_key == 0 and is_null == 0 and flags & CAST else 0
            out_pos = write_text_before_value(memory, count, clause, is_null, cast, entry, out_pos)
            if changed == 0:
                name = memory.r + load_word(memory.texts, entry + 16)
                out_pos = copy_text(memory.texts, name, load_word(memory.texts, entry + 20), memory.out, out_pos)
            elif is_null == 0:
                out_pos = write_column_value(
                    RowKernelBuffers(memory.buf, end, memory.texts, memory.r, memory.out, memory.z),
                    pos, clause, cast, entry, out_pos,
                )  # fmt: skip
                if out_pos < 0:
                    return pos, out_pos
            elif clause < 2:
                out_pos = write_packed_text(0x4C4C554E, 4, memory.out, out_pos)
            count += 1
            changes += changed
        pos = end
        entry += COLUMN_SIZE
    return pos, -2 if changes == 0 and clause > 0 else out_pos


@kernel(write_constant_text, write_image_clause, find_image_end)
def write_row_clauses(
    memory: RowKernelBuffers, pos: int, images: ImageBitmaps, uses_key: int, out_pos: int
) -> tuple[int, int]:
    """Write one row; return (offset after its images, end of the output)."""
    middle = pos
    if images.kind == UPDATED:
        middle = find_image_end(
            memory.buf, pos, memory.n, memory.buf, images.before, images.befores, memory.texts, memory.r
        )
        if middle < 0:
            return pos, -2
    images_end = pos
    for clause in range(images.kind, 1 if images.kind == INSERTED else 3):
        if memory.z - out_pos < _MAX_FIXED_VALUE:
            return pos, -1
        if clause > 0:
            out_pos = write_constant_text(_WHERE if clause == 2 else _SET, memory.texts, memory.out, out_pos)
        end, out_pos = write_image_clause(
            memory, images, pos, middle if clause == 1 else pos, clause, uses_key, out_pos
        )
        if out_pos < 0:
            return pos, out_pos
        images_end = max(images_end, end)
    return images_end, out_pos


@kernel(copy_text, write_constant_text, write_column_name_list, load_word)
def write_row_statement_start(memory: RowKernelBuffers, images: ImageBitmaps, out_pos: int) -> int:
    """Write the beginning of a statement, up to its first value or assignment."""
    target = load_word(memory.texts, memory.r + 8)
    if memory.z - out_pos < target + _MAX_FIXED_VALUE:
        return -1
    verb = _INSERT if images.kind == INSERTED else _UPDATE if images.kind == UPDATED else _DELETE
    out_pos = write_constant_text(verb, memory.texts, memory.out, out_pos)
    out_pos = copy_text(memory.texts, memory.r + load_word(memory.texts, memory.r + 4), target, memory.out, out_pos)
    if images.kind > 0:
        return out_pos
    memory.out[out_pos] = 32
    out_pos = write_column_name_list(
        memory.buf, images.after, memory.texts, memory.r, memory.out, out_pos + 1, memory.z
    )
    return out_pos if out_pos < 0 else write_constant_text(_VALUES, memory.texts, memory.out, out_pos)


@kernel(write_constant_text, write_row_clauses, write_row_statement_start)
def write_row_statements(memory: RowKernelBuffers, pos: int, images: ImageBitmaps, uses_key: int, out_pos: int) -> int:
    """Write the statements of all rows up to the end of the event; several rows share one INSERT."""
    length = 0
    while pos < memory.n:
        start = pos
        if length > 0:
            memory.out[out_pos] = 44
            memory.out[out_pos + 1] = 10
            out_pos += 2
        else:
            out_pos = write_row_statement_start(memory, images, out_pos)
            if out_pos < 0:
                return out_pos
        text = out_pos
        if images.kind == INSERTED:
            memory.out[out_pos] = 40
            out_pos += 1
        pos, out_pos = write_row_clauses(memory, pos, images, uses_key, out_pos)
        if out_pos < 0:
            return out_pos
        if pos == start:
            return -2
        if memory.z - out_pos < _MAX_FIXED_VALUE:
            return -1
        if images.kind == INSERTED:
            memory.out[out_pos] = 41
            out_pos += 1
            length += out_pos - text
        else:
            out_pos = write_constant_text(_LIMIT, memory.texts, memory.out, out_pos)
        if images.kind > 0 or length >= MAX_INSERT_BYTES or pos >= memory.n:
            out_pos = write_constant_text(_END, memory.texts, memory.out, out_pos)
            length = 0
    return out_pos


# --- Row events, one statement after the other, as kernels ---


@kernel(
    find_session_transition, find_row_images, has_all_key_columns, count_present_columns, write_session_before_rows,
    write_row_statements,
    find_rows_session_request, load_word,
)  # fmt: skip
def write_rows_as_statements(
    memory: ScriptMemory, pos: int, limit: int, type_code: int, time: int, template_at: int, out_pos: int
) -> int:
    """Write the body of an uncompressed row event whose template is at `texts[template_at]`."""
    columns = load_word(memory.texts, template_at)
    pos += memory.state[TABLE_ID_SIZE]
    flags, _extra, before, after, at = find_row_images(memory.buf, pos, limit, type_code, columns)
    request = find_rows_session_request(flags & memory.state[ROW_FLAG_MASK], memory.moves)
    cell = find_session_transition(memory.state[SESSION_NUMBER] + 0, request, memory.moves)
    if at < 0 or cell < 0:
        return -2
    kind = (type_code - WRITE_ROWS_V1) % VERSION_OFFSET
    out_pos = write_session_before_rows(cell, 1000000 * time, memory, out_pos)
    memory.state[NEXT_SESSION_NUMBER] = load_word(memory.moves, cell) - 1
    befores = count_present_columns(memory.buf, before, columns)
    afters = count_present_columns(memory.buf, after, columns)
    return write_row_statements(
        RowKernelBuffers(memory.buf, limit, memory.texts, template_at, memory.out, memory.z),
        at,
        ImageBitmaps(kind, before, befores, after, afters),
        has_all_key_columns(memory.buf, before, memory.texts, template_at) if kind > 0 else 0,
        out_pos,
    )


@kernel(
    find_table_template,
    write_rows_as_statements,
    write_row_event_as_binlog,
    write_position_comment,
    write_event_type_name,
    load_word,
)
def write_commented_rows(event_index: int, events: EventColumns, memory: ScriptMemory, out_pos: int) -> int:
    """Write a row event after its comment: as statements, or as BINLOG if it cannot be written as statements."""
    template = find_table_template(memory.texts, memory.state[TEMPLATES] + 0, events.maps[event_index])
    if memory.state[TRANSACTION_STATE] != IN_TRANSACTION or template == 0:
        return -2
    code = events.codes[event_index] + 0
    time = events.times[event_index] + 0
    out_pos = write_position_comment(events.places[event_index] + 0, memory, out_pos)
    out_pos = write_event_type_name(events.types[event_index] + 0, memory.texts, memory.out, out_pos)
    if load_word(memory.texts, template + 20) > 0:
        whole = events.stops[event_index] - events.ends[event_index] == memory.state[CHECKSUM_BYTES]
        return (
            write_row_event_as_binlog(
                events.offsets[event_index],
                events.starts[event_index],
                events.stops[event_index],
                code,
                memory,
                template,
                out_pos,
            )
            if whole
            else -2
        )
    out_pos = write_rows_as_statements(
        memory, events.starts[event_index], events.ends[event_index], code, time, template, out_pos
    )
    if out_pos >= 0:
        memory.state[SESSION_NUMBER] = memory.state[NEXT_SESSION_NUMBER] + 0
        memory.state[SESSION_CHANGED] = 1
        if time > 0:
            memory.state[TIMESTAMP_US] = 1000000 * time
    return out_pos


@kernel(write_statement_as_binlog, find_last_event_of_statement)
def write_statement_events_as_binlog(
    event_index: int, last: int, events: EventColumns, memory: ScriptMemory, out_pos: int
) -> int:
    """Write the events from the TABLE_MAP `event_index` to the row event `last` as BINLOG; -1 if the buffer is full."""
    need = 8 * (last - event_index + 1) + MAX_EVENT_TEXT
    for j in range(event_index, last + 1):
        need += (events.stops[j] - events.offsets[j]) // 3 * 4
    return -1 if memory.z - out_pos < need else write_statement_as_binlog(event_index, last, events, memory, out_pos)


@kernel(
    write_transaction_event, write_change_statement, write_commented_rows, write_statement_events_as_binlog,
    find_statement_after_variables,
    find_last_event_of_statement, is_uncompressed_row_event,
)  # fmt: skip
def write_script_events(event_index: int, stop: int, events: EventColumns, memory: ScriptMemory) -> int:
    """Write the events from `event_index` on; return the index at which the kernel stopped. Other results are in the
    state.

    Rows become statements or BINLOG, see ROWS_AS_STATEMENTS.
    """
    done = 0
    as_statements = memory.state[ROWS_AS_STATEMENTS] != 0
    memory.state[LAST_GTID_INDEX] = -1
    memory.state[OUTPUT_FULL] = 0
    memory.state[SESSION_CHANGED] = 0
    while event_index < stop:
        code = events.codes[event_index]
        last = event_index
        in_transaction = memory.state[TRANSACTION_STATE] == IN_TRANSACTION
        memory.state[CONTAINER_OFFSET] = events.holders[event_index] + 0
        if memory.z - done < MAX_EVENT_TEXT:
            memory.state[OUTPUT_FULL] = 1
            break
        if code == TABLE_MAP and as_statements:
            o = done if in_transaction and events.maps[event_index] >= 0 else -2
        elif code == TABLE_MAP:
            last = find_last_event_of_statement(event_index, stop, events, memory) if in_transaction else -1
            o = write_statement_events_as_binlog(event_index, last, events, memory, done) if last >= 0 else -2
        elif as_statements and is_uncompressed_row_event(code) and code != PARTIAL_UPDATE_ROWS:
            o = write_commented_rows(event_index, events, memory, done)
        elif in_transaction and (code == QUERY or code == INTVAR or code == RAND):  # noqa: SIM109
            last = find_statement_after_variables(event_index, stop, events, memory)
            o = write_change_statement(event_index, last, events.places[max(last, 0)] + 0, events, memory, done)
        else:
            o = write_transaction_event(event_index, events, code, events.places[event_index] + 0, memory, done)
            if o < 0:
                break
        if o < 0:
            if o == -1:
                memory.state[OUTPUT_FULL] = 1 if done > 0 else 0
            break
        done = o
        event_index = last + 1
    memory.state[BYTES_WRITTEN] = done
    return event_index
