"""Kernels of the row store: a hash table in one memory area that holds all rows.

`rows` is that memory as integers, `texts` and `out` are the same memory as bytes. A row at integer `at` has: the hash
of its key; ROW_OWNER, the number of its object and the size of its key; ROW_STATE, the epoch of the object and the
row's state; ROW_IMAGE_SIZE, the bytes reserved for its image and those in use; its key and its image, each aligned to
an integer. `slots` has the positions of rows plus 1, by hash. Before a new key is looked up, it is written after the
last row, where it would be in its new row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from binlogtool.format_api.layout import Kernel, blake2b
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, MutableUInt8s, UInt8s, are_bytes_equal, kernel

ROW_OWNER, ROW_STATE, ROW_IMAGE_SIZE, ROW_CONTENT = 1, 2, 3, 4
"""Indexes of the integers of a row; index 0 is the hash."""

HEAD_FREE, HEAD_END, HEAD_SLOT_MASK, HEAD_ROW_COUNT, HEAD_ABANDONED, HEAD_HASH_SEED, HEAD_SIZE = range(7)
"""Indexes of `head`: first unused integer of the memory, end of the memory, number of slots minus 1, number of rows,
integers of abandoned rows, hash seed; and the size of `head`."""

NO_SPACE, UNSUPPORTED = -1, -2
"""Result codes: the memory or the slots are full; the general code must handle the key."""

ROW_DELETED, ROW_KNOWN, ROW_PENDING, ROW_MIXED = 0, 1, 2, 4
"""States of a row: deleted; image known; only changes known, because no record that was read contains the image.
ROW_MIXED (a flag): the image is packed with operations that are not applied yet."""

OBJECT_EPOCH, OBJECT_NAME_OFFSET, OBJECT_NAME_SIZE, OBJECT_SIZE = range(4)
"""Indexes of the integers of an object for `add_row_digests_until_other_state`: epoch, offset and size of its name;
and their number.
"""

_FOLD, _STEP = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
_U64 = (1 << 64) - 1


class StoreMemory(NamedTuple):
    """Memory of a row store: its bytes as `texts` and `out`, its integers as `rows`, with `slots` and `head`."""

    texts: UInt8s
    out: MutableUInt8s
    rows: MutableInt64s
    slots: MutableInt64s
    head: MutableInt64s


class RowStoreMemory(Protocol):
    """Row store as the kernels of a format use it."""

    @property
    def memory(self) -> StoreMemory:
        """The arrays `texts`, `out`, `rows`, `slots` and `head`; valid until `grow`."""

    @property
    def version(self) -> int:
        """A number that changes whenever an object gets another number or epoch."""

    def compile_kernel(self, function: Kernel) -> Kernel:
        """Return the kernel, compiled if possible."""

    def get_object_number_and_epoch(self, object_name: str) -> tuple[int, int]:
        """Return the number of the object that currently has this name, and its epoch."""

    def make_room(self) -> None:
        """Allocate more memory after a kernel returned NO_SPACE."""


@kernel(native="copy_bytes")
def copy_bytes(buf: UInt8s, pos: int, limit: int, out: MutableUInt8s, out_pos: int) -> int:
    """Copy `buf[pos:limit]` to `out[out_pos]`; return the end."""
    for i in range(limit - pos):
        out[out_pos + i] = buf[pos + i]
    return out_pos + (limit - pos)


@kernel(native="hash_bytes")
def hash_bytes(texts: UInt8s, p: int, size: int, seed: int) -> int:
    """Return a hash that cannot be predicted without the seed."""
    value = (seed ^ size * _STEP) & _U64
    for at in range(p, p + size, 8):
        word = int.from_bytes(bytes(texts[at : min(at + 8, p + size)]), "little")
        product = (value ^ word) * _FOLD
        value = (product ^ product >> 64) & _U64
        product = (value ^ seed & _U64) * _STEP
        value = (product ^ product >> 64) & _U64
    return value - (value >> 63 << 64)


@kernel()
def count_integers(size: int) -> int:
    """Return the number of integers that hold `size` bytes."""
    return (size + 7) >> 3


@kernel(count_integers)
def has_space(head: Int64s, key_size: int, image_size: int) -> int:
    """Return 1 if there is memory and a slot for one more row, else 0."""
    if head[HEAD_FREE] + ROW_CONTENT + count_integers(key_size) + count_integers(image_size) > head[HEAD_END]:
        return 0
    return 1 if 3 * (head[HEAD_ROW_COUNT] + 1) <= 2 * (head[HEAD_SLOT_MASK] + 1) else 0


@kernel(hash_bytes, are_bytes_equal)
def look_up_key_after_last_row(
    texts: UInt8s, rows: Int64s, slots: Int64s, head: Int64s, owner: int
) -> tuple[int, int, int]:
    """Look up the key after the last row; return its slot, row (-1 = none) and hash. owner: ROW_OWNER of the row."""
    p = 8 * (head[HEAD_FREE] + ROW_CONTENT)
    size = owner & 0x7FFFFFFF
    hash_value = hash_bytes(texts, p, size, head[HEAD_HASH_SEED] ^ owner)
    slot = hash_value & head[HEAD_SLOT_MASK]
    while slots[slot] != 0:
        at = slots[slot] - 1
        if (
            rows[at] == hash_value
            and rows[at + ROW_OWNER] == owner
            and are_bytes_equal(texts, p, texts, 8 * (at + ROW_CONTENT), size) != 0
        ):
            return slot, at, hash_value
        slot = (slot + 1) & head[HEAD_SLOT_MASK]
    return slot, -1, hash_value


@kernel(count_integers)
def abandon_row(rows: MutableInt64s, head: MutableInt64s, at: int) -> int:
    """Mark the memory of a row as abandoned."""
    head[HEAD_ABANDONED] = (
        head[HEAD_ABANDONED]
        + ROW_CONTENT
        + count_integers(rows[at + ROW_OWNER] & 0x7FFFFFFF)
        + count_integers(rows[at + ROW_IMAGE_SIZE] >> 32)
    )
    rows[at + ROW_STATE] = -1
    return 0


@kernel(count_integers, abandon_row)
def append_row_replacing_old(
    rows: MutableInt64s,
    slots: MutableInt64s,
    head: MutableInt64s,
    slot: int,
    old_row: int,
    hash_value: int,
    owner: int,
    state: int,
    size: int,
) -> int:
    """Turn the key and image after the last row into a row. old_row: the old row of this key; -1 = none."""
    at = head[HEAD_FREE]
    image_integers = count_integers(size)
    rows[at] = hash_value
    rows[at + ROW_OWNER] = owner
    rows[at + ROW_STATE] = state
    rows[at + ROW_IMAGE_SIZE] = (image_integers << 35) + size
    head[HEAD_FREE] = at + ROW_CONTENT + count_integers(owner & 0x7FFFFFFF) + image_integers
    if old_row >= 0:
        abandon_row(rows, head, old_row)
    else:
        head[HEAD_ROW_COUNT] = head[HEAD_ROW_COUNT] + 1
    slots[slot] = at + 1
    return at


@kernel(copy_bytes, count_integers, look_up_key_after_last_row, append_row_replacing_old)
def set_image_of_key_after_last_row(
    buf: UInt8s, pos: int, limit: int, memory: StoreMemory, owner: int, state: int
) -> int:
    """Set the image of the row whose key is after the last row to `buf[pos:limit]`. There must be space for it."""
    slot, at, hash_value = look_up_key_after_last_row(memory.texts, memory.rows, memory.slots, memory.head, owner)
    image = ROW_CONTENT + count_integers(owner & 0x7FFFFFFF)
    if at >= 0 and limit - pos <= memory.rows[at + ROW_IMAGE_SIZE] >> 32:
        copy_bytes(buf, pos, limit, memory.out, 8 * (at + image))
        memory.rows[at + ROW_STATE] = state
        memory.rows[at + ROW_IMAGE_SIZE] = ((memory.rows[at + ROW_IMAGE_SIZE] >> 32) << 32) + limit - pos
        return at
    copy_bytes(buf, pos, limit, memory.out, 8 * (memory.head[HEAD_FREE] + image))
    return append_row_replacing_old(
        memory.rows, memory.slots, memory.head, slot, at, hash_value, owner, state, limit - pos
    )


@kernel(copy_bytes, has_space, set_image_of_key_after_last_row)
def set_image_of_key(buf: UInt8s, size: int, n: int, memory: StoreMemory, number: int, state: int) -> int:
    """Set the image of the key `buf[:size]` of object `number` to `buf[size:n]`; return NO_SPACE if it does not fit."""
    if has_space(memory.head, size, n - size) == 0:
        return -1
    copy_bytes(buf, 0, size, memory.out, 8 * (memory.head[HEAD_FREE] + ROW_CONTENT))
    return set_image_of_key_after_last_row(buf, size, n, memory, (number << 32) + size, state)


@kernel(copy_bytes, has_space, look_up_key_after_last_row)
def get_row_index(buf: UInt8s, size: int, memory: StoreMemory, number: int) -> int:
    """Return the row with key `buf[:size]` of object `number`; NO_SPACE = none for the lookup, UNSUPPORTED = no row."""
    if has_space(memory.head, size, 0) == 0:
        return -1
    copy_bytes(buf, 0, size, memory.out, 8 * (memory.head[HEAD_FREE] + ROW_CONTENT))
    at = look_up_key_after_last_row(memory.texts, memory.rows, memory.slots, memory.head, (number << 32) + size)[1]
    return at if at >= 0 else -2


@kernel()
def insert_slot(rows: Int64s, slots: MutableInt64s, head: Int64s, at: int) -> int:
    """Insert a row into the slots."""
    slot = rows[at] & head[HEAD_SLOT_MASK]
    while slots[slot] != 0:
        slot = (slot + 1) & head[HEAD_SLOT_MASK]
    slots[slot] = at + 1
    return slot


@kernel(count_integers, insert_slot)
def compact_rows(rows: MutableInt64s, slots: MutableInt64s, head: MutableInt64s) -> int:
    """Move all rows together, dropping abandoned ones, and refill the slots, which must be empty."""
    at = 0
    free = 0
    while at < head[HEAD_FREE]:
        size = (
            ROW_CONTENT
            + count_integers(rows[at + ROW_OWNER] & 0x7FFFFFFF)
            + count_integers(rows[at + ROW_IMAGE_SIZE] >> 32)
        )
        if rows[at + ROW_STATE] != -1:
            if free < at:
                for i in range(size):
                    rows[free + i] = rows[at + i]
            insert_slot(rows, slots, head, free)
            free += size
        at += size
    head[HEAD_FREE] = free
    head[HEAD_ABANDONED] = 0
    return free


@kernel(native="add_row")
def add_row_digest(
    texts: UInt8s,
    name: int,
    name_size: int,
    buf: UInt8s,
    key: int,
    key_size: int,
    image: int,
    size: int,
    sums: MutableInt64s,
    at: int,
) -> int:
    """Add the digest of a row (`prediction.row_store.hash_row`) to the 256 bits at `sums[at]`, lowest first."""
    named, key_of = bytes(texts[name : name + name_size]), bytes(buf[key : key + key_size])
    data = b"%d:%d:%b%b%b" % (name_size, key_size, named, key_of, bytes(buf[image : image + size]))
    total = int.from_bytes(blake2b(data, digest_size=32).digest(), "big")
    total += sum((sums[at + i] & _U64) << 64 * i for i in range(4))
    for i in range(4):
        word = total >> 64 * i & _U64
        sums[at + i] = word - (word >> 63 << 64)
    return 0


@kernel(add_row_digest, count_integers)
def add_row_digests_until_other_state(
    texts: UInt8s, buf: UInt8s, rows: Int64s, head: Int64s, objects: Int64s, sums: MutableInt64s, at: int
) -> int:
    """Add all rows from `at` on to the sums: per object, their count and the sum of their digests (5 integers of
    `sums`).

    Returns the position of a row that is neither known nor deleted, or the end of the rows. texts: names of objects.
    """
    while at < head[HEAD_FREE]:
        size = rows[at + ROW_OWNER] & 0x7FFFFFFF
        image = at + ROW_CONTENT + count_integers(size)
        number = rows[at + ROW_OWNER] >> 32
        if rows[at + ROW_STATE] & 255 > 1 and rows[at + ROW_STATE] != -1:
            return at
        if rows[at + ROW_STATE] == (objects[OBJECT_SIZE * number + OBJECT_EPOCH] << 8) + 1:
            name = objects[OBJECT_SIZE * number + OBJECT_NAME_OFFSET] + 0
            named = objects[OBJECT_SIZE * number + OBJECT_NAME_SIZE] + 0
            content = 8 * (at + ROW_CONTENT)
            length = rows[at + ROW_IMAGE_SIZE] & 0x7FFFFFFF
            add_row_digest(texts, name, named, buf, content, size, 8 * image, length, sums, 5 * number + 1)
            sums[5 * number] = sums[5 * number] + 1
        at = image + count_integers(rows[at + ROW_IMAGE_SIZE] >> 32)
    return at


def pack_names(objects: Iterable[str]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the names of objects concatenated, and the (offset, size) of each."""
    names = [name.encode(errors="surrogatepass") for name in objects]
    places, at = [], 0
    for name in names:
        places.append((at, len(name)))
        at += len(name)
    return b"".join(names), places
