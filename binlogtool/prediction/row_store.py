"""The rows that a replay keeps, and the digest of the resulting state.

Each live row is hashed to a number: BLAKE2b of object, key and image, 256 bits. The digest is their sum modulo 2^256,
so it is the same for one log, for the log split into files, and for sums of parts that were computed elsewhere. Memory
holds one entry per key; when there are too many, all are spilled to temporary files by a part of the key's hash, and
each file is folded separately at the end. A renamed object keeps its rows: they stay stored under its first name, and
are hashed at the end.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from itertools import chain
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from binlogtool.errors import LimitError
from binlogtool.format_api import row_store_kernels
from binlogtool.format_api.layout import Kernel, blake2b
from binlogtool.format_api.replay_rules import ADD, DELETE, DROP, PATCH, PUT, REMOVE, StateChange
from binlogtool.format_api.row_store_kernels import (
    HEAD_ABANDONED,
    HEAD_END,
    HEAD_FREE,
    HEAD_HASH_SEED,
    HEAD_SIZE,
    HEAD_SLOT_MASK,
    NO_SPACE,
    ROW_DELETED,
    ROW_IMAGE_SIZE,
    ROW_KNOWN,
    ROW_MIXED,
    ROW_OWNER,
    ROW_PENDING,
    ROW_STATE,
)

# --- The row store of a replay ---

_MIN_MEMORY, _MAX_GROWTH = 1 << 16, 8 << 20
"""Initial size of the memory, and the maximum by which it grows in one step, in bytes."""

_MIN_SLOTS = 1 << 12
_SUM_WORDS = 5
_LOW_31_BITS = (1 << 31) - 1
_U64 = (1 << 64) - 1

KeyEntry = tuple[int, int, bytes, tuple[bytes, ...]]
"""Entry of a key: (epoch of its object, state (ROW_KNOWN, …), image, operations not yet applied to the image)."""


class ObjectNames(NamedTuple):
    """Functions: current name of an object -> name under which its rows are stored; stored name -> epoch."""

    kept_name: Callable[[str], str]
    epoch: Callable[[str], int]


class CompiledRowStore:
    """Rows by object and key in a hash table that grows, shared with compiled kernels
    (`format_api.row_store_kernels.RowStoreMemory`).

    Args:
        compiled: Function that compiles a kernel.
        names: Names under which the rows of objects are stored, and their epochs.
        can_grow: Function that returns True if the table may take that many more bytes, and otherwise empties it.
    """

    def __init__(
        self, compiled: Callable[[Kernel], Kernel], names: ObjectNames, can_grow: Callable[[int], bool]
    ) -> None:
        self.compile_kernel = compiled
        self.numbers: dict[str, int] = {}
        """Name under which an object is stored -> its number in the table."""
        self.version = 0
        self._names, self._can_grow = names, can_grow
        self._allocate()

    def _allocate(self) -> None:
        self._memory_map = mmap(-1, _MIN_MEMORY, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._head = array("q", bytes(8 * HEAD_SIZE))
        self._head[HEAD_HASH_SEED] = int.from_bytes(os.urandom(8), "little", signed=True)
        self._slots = array("q", bytes(8 * _MIN_SLOTS))
        self._head[HEAD_SLOT_MASK] = _MIN_SLOTS - 1
        self._map_views()

    def _map_views(self) -> None:
        self._bytes = memoryview(self._memory_map)
        self._rows = self._bytes.cast("q")
        self._head[HEAD_END] = len(self._rows)

    @property
    def memory(self) -> row_store_kernels.StoreMemory:
        """Memory of the table, as an argument for kernels."""
        return row_store_kernels.StoreMemory(self._bytes, self._bytes, self._rows, self._slots, self._head)

    @property
    def size(self) -> int:
        """Size of the table's memory in bytes."""
        return len(self._bytes) + 8 * len(self._slots)

    def __len__(self) -> int:
        return int(self._head[row_store_kernels.HEAD_ROW_COUNT])

    def get_object_number_and_epoch(self, object_name: str) -> tuple[int, int]:
        """Return the number of an object in the table, and its epoch."""
        kept = self._names.kept_name(object_name)
        return self.numbers.setdefault(kept, len(self.numbers)), self._names.epoch(kept)

    # -- single rows -----------------------------------------------------------------------------------------------

    def get_entry(self, stored_name: str, key: bytes) -> KeyEntry | None:
        """Return the entry of a key; None if the key is not in the table."""
        number = self.numbers.get(stored_name)
        if number is None:
            return None
        row_index = self._call_kernel(row_store_kernels.get_row_index, key, len(key), number=number)
        return None if row_index < 0 else self._read_row(row_index)[2]

    def put_entry(self, stored_name: str, key: bytes, entry: KeyEntry) -> None:
        """Store the entry of a key."""
        epoch, state, image, operations = entry
        if operations:
            state, image = state | ROW_MIXED, msgspec.msgpack.encode((image, operations))
        number = self.numbers[stored_name]
        self._call_kernel(
            row_store_kernels.set_image_of_key,
            key + image,
            len(key),
            len(key) + len(image),
            number=number,
            state=epoch << 8 | state,
        )

    def _call_kernel(self, kernel: Kernel, data: bytes, *sizes: int, **extra_arguments: int) -> int:
        """Call a kernel on the table; as long as the table is too small, grow it and repeat the call."""
        while True:
            result: int = self.compile_kernel(kernel)(data, *sizes, self.memory, *extra_arguments.values())
            if result != NO_SPACE:
                return result
            self.make_room(8 * 8 + len(data))

    # -- memory ----------------------------------------------------------------------------------------------------

    def make_room(self, size: int = 0) -> None:
        """Make room for at least `size` more bytes by rebuilding or growing the table, or else empty it."""
        head = self._head
        if 3 * (len(self) + 1) > 2 * len(self._slots):
            self._rebuild(2 * len(self._slots))
        elif 4 * head[HEAD_ABANDONED] > head[HEAD_FREE]:
            self._rebuild(len(self._slots))
        else:
            step = max(min(len(self._bytes), _MAX_GROWTH), -(-size // _MIN_MEMORY) * _MIN_MEMORY)
            if self._can_grow(step):
                self._resize_memory(len(self._bytes) + step)

    def _rebuild(self, slots: int) -> None:
        if slots == len(self._slots) or self._can_grow(8 * (slots - len(self._slots))):
            self._slots = array("q", bytes(8))
            self._slots = array("q", bytes(8)) * slots
            self._head[HEAD_SLOT_MASK] = slots - 1
            self.compile_kernel(row_store_kernels.compact_rows)(self._rows, self._slots, self._head)

    def _resize_memory(self, new_size: int) -> None:
        self._rows.release()
        self._bytes.release()
        try:
            self._memory_map.resize(new_size)
        except (SystemError, OSError, ValueError):
            larger_map = mmap(-1, new_size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
            larger_map[: len(self._memory_map)] = self._memory_map[:]
            self._memory_map = larger_map
        self._map_views()

    def clear(self) -> None:
        """Remove all rows; objects keep their numbers."""
        self._rows.release()
        self._bytes.release()
        self._memory_map.close()
        self._allocate()

    # -- all rows --------------------------------------------------------------------------------------------------

    def iter_rows(self) -> Iterator[tuple[tuple[str, bytes], KeyEntry]]:
        """Yield ((stored name, key), entry) of all rows."""
        names, row_index = list(self.numbers), 0
        while row_index < self._head[HEAD_FREE]:
            next_index = self._next_row(row_index)
            if self._rows[row_index + ROW_STATE] != -1:
                number, key, entry = self._read_row(row_index)
                yield (names[number], key), entry
            row_index = next_index

    def sum_row_hashes(
        self, get_digest_name: Callable[[str], str], on_other_entry: Callable[[str, bytes, KeyEntry], None]
    ) -> dict[str, tuple[int, int]]:
        """Return stored name -> (number of rows, sum of their hashes).

        Args:
            get_digest_name: Stored name -> the name that the digest uses.
            on_other_entry: Called for entries that are not plain rows.
        """
        names = list(self.numbers)
        text, places = row_store_kernels.pack_names([get_digest_name(name) for name in names])
        objects = array("q")
        for name, (at, size) in zip(names, places, strict=True):
            objects.extend((self._names.epoch(name), at, size))
        sums = array("q", bytes(8 * _SUM_WORDS * len(names)))
        at = 0
        while at < self._head[HEAD_FREE]:
            at = self.compile_kernel(row_store_kernels.add_row_digests_until_other_state)(
                text or b"\0", self._bytes, self._rows, self._head, objects, sums, at
            )
            if at < self._head[HEAD_FREE]:
                number, key, entry = self._read_row(at)
                on_other_entry(names[number], key, entry)
                at = self._next_row(at)
        return {
            name: (sums[_SUM_WORDS * i], sum((sums[_SUM_WORDS * i + 1 + k] & _U64) << 64 * k for k in range(4)))
            for i, name in enumerate(names)
        }

    def _next_row(self, row_index: int) -> int:
        key, capacity = self._rows[row_index + ROW_OWNER] & _LOW_31_BITS, self._rows[row_index + ROW_IMAGE_SIZE] >> 32
        return row_index + row_store_kernels.ROW_CONTENT + (key + 7 >> 3) + (capacity + 7 >> 3)

    def _read_row(self, row_index: int) -> tuple[int, bytes, KeyEntry]:
        """Return object number, key and entry of the row at an index of 64-bit words."""
        owner, state = self._rows[row_index + ROW_OWNER], self._rows[row_index + ROW_STATE]
        start = 8 * (row_index + row_store_kernels.ROW_CONTENT)
        key = bytes(self._bytes[start : start + (owner & _LOW_31_BITS)])
        start += (len(key) + 7) & ~7
        image = bytes(self._bytes[start : start + (self._rows[row_index + ROW_IMAGE_SIZE] & _LOW_31_BITS)])
        operations: tuple[bytes, ...] = ()
        if state & ROW_MIXED:
            image, operations = msgspec.msgpack.decode(image, type=tuple[bytes, tuple[bytes, ...]])
        return owner >> 32, key, (state >> 8, state & (ROW_MIXED - 1), image, operations)


# --- Digest of the rows that a replay leaves ---

MODULUS = 1 << 256
OTHERS = "(other objects)"
"""Name under which the objects beyond the memory limit are summed up."""

ENTRY_BYTES = 400
"""Approximate memory of a key in addition to its image, in bytes: two keys, a tuple, a slot."""

_BUCKETS = 64

Patch = Callable[[bytes, bytes], bytes | None]


def hash_row(object: str, key: bytes, image: bytes) -> int:
    """Hash a row to the 256-bit integer that is added to the digest."""
    name = _encode_name(object)
    data = b"%d:%d:%b%b%b" % (len(name), len(key), name, key, image)
    return int.from_bytes(blake2b(data, digest_size=32).digest(), "big")


@lru_cache
def _derive_object_factor(object: str) -> int:
    """Return the odd factor for the sum of an object's keyless rows, which may be counted under another name."""
    return int.from_bytes(blake2b(_encode_name(object), digest_size=32).digest(), "big") | 1


@lru_cache
def _encode_name(object: str) -> bytes:
    return object.encode(errors="surrogatepass")


def hash_image(image: bytes) -> bytes:
    """Hash an image that is only ever replaced as a whole, to 16 bytes that are stored instead of it."""
    return blake2b(image, digest_size=16).digest()


def apply_change_to_entry(
    before: KeyEntry | None, epoch: int, kind: int, image: bytes, patch: Patch | None
) -> KeyEntry:
    """Return the entry of a key after one more change.

    Args:
        before: The entry so far; an entry of an earlier epoch counts as absent.
        epoch: How often the object was emptied.
        kind: PUT, DELETE or PATCH.
        image: The new image, or the operation of a PATCH.
        patch: See `ReplayRules.patch`; None if images are always whole.
    """
    if kind == PUT:
        return epoch, ROW_KNOWN, image, ()
    if kind == DELETE:
        return epoch, ROW_DELETED, b"", ()
    if before is None or before[0] != epoch:
        return epoch, ROW_PENDING, b"", (image,)
    _, state, old, operations = before
    if state == ROW_PENDING or operations or patch is None:
        return epoch, state, old, (*operations, image)
    return _apply_patch(before, image, patch)


def _apply_patch(before: KeyEntry, operation: bytes, patch: Patch) -> KeyEntry:
    epoch, state, old, _ = before
    changed = patch(old, operation)
    if changed is not None:
        return epoch, ROW_KNOWN, changed, ()
    return before if state == ROW_DELETED else (epoch, state, old, (operation,))


def merge_entries(before: KeyEntry | None, later: KeyEntry, patch: Patch | None) -> KeyEntry:
    """Merge two entries of one key; the changes of `later` follow those of `before`."""
    if later[1] != ROW_PENDING or before is None or before[0] != later[0]:
        return later
    for operation in later[3]:
        before = apply_change_to_entry(before, later[0], PATCH, operation, patch)
    return before


def resolve_final_entry(entry: KeyEntry, patch: Patch | None) -> KeyEntry:
    """Return the entry at the end of the replay: in an object once emptied, a key without an image is absent."""
    epoch, state, _, operations = entry
    if state != ROW_PENDING or not epoch:
        return entry
    last: KeyEntry = epoch, ROW_DELETED, b"", ()
    for operation in operations if patch is not None else ():
        last = apply_change_to_entry(last, epoch, PATCH, operation, patch)
    return last


def encode_final_image(entry: KeyEntry) -> bytes:
    """Return the bytes of an entry that the digest hashes: the image, or a hash of it and of the operations that could
    not be applied.
    """
    _, state, image, operations = entry
    if state == ROW_KNOWN and not operations:
        return image
    digest = blake2b(image, digest_size=16)
    for operation in operations:
        digest.update(len(operation).to_bytes(8, "big") + operation)
    return b"\xff" + digest.digest()


def hash_final_row(object: str, key: bytes, entry: KeyEntry, patch: Patch | None) -> tuple[int, int] | None:
    """Return the epoch of the object and the hash of the row at the end of the replay; None if there is no row."""
    if entry[1] == ROW_KNOWN and not entry[3]:
        return entry[0], hash_row(object, key, entry[2])
    last = resolve_final_entry(entry, patch)
    return None if last[1] == ROW_DELETED else (last[0], hash_row(object, key, encode_final_image(last)))


class ObjectState(msgspec.Struct):
    """Rows of one object.

    Attributes:
        keys: Number of live keys, or of rows in an object without a key.
        total: Sum of their hashes, modulo 2^256.
    """

    keys: int = 0
    total: int = 0

    def add_row_hash(self, row_hash: int, count: int = 1, keys: int | None = None) -> None:
        """Add (count 1) or remove (count -1) a row by its hash, or add a sum over `keys` rows."""
        self.keys += count if keys is None else keys
        self.total = (self.total + count * row_hash) % MODULUS

    @property
    def digest(self) -> str:
        """The total as 64 hexadecimal digits."""
        return f"{self.total:064x}"


class ReplayState(msgspec.Struct):
    """Rows at the end of a replay, folded from all changes. `close` removes the temporary files.

    Attributes:
        max_memory: Bytes that the entries may take before they are spilled.
        patch: See `ReplayRules.patch`.
        spilled: Number of entries that were written to temporary files.
    """

    max_memory: int
    patch: Patch | None = None
    spilled: int = 0
    _entries: dict[tuple[str, bytes], KeyEntry] = msgspec.field(default_factory=dict)
    _entry_bytes: int = 0
    _epochs: dict[str, int] = msgspec.field(default_factory=dict)  # how often an object was emptied
    _kept_names: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # current name -> name under which its entries are stored
    _current_names: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # the reverse mapping; both contain renamed objects only
    _keyless_rows: dict[str, ObjectState] = msgspec.field(default_factory=dict)
    _row_store: CompiledRowStore | None = None
    _spill_files: list[IO[bytes]] = msgspec.field(default_factory=list)
    _exit_stack: ExitStack = msgspec.field(default_factory=ExitStack)

    def apply_changes(self, changes: Iterable[StateChange]) -> None:
        """Apply changes in the order of the log."""
        kept_names = self._kept_names
        for name, kind, key, image in changes:
            name = kept_names.get(name, name) if kept_names else name
            if kind < DROP:
                self._change_key((name, key), kind, image)
            elif kind == DROP:
                self._empty_object(name)
            elif kind <= REMOVE:
                rows = self._keyless_rows.get(name) or self._keyless_rows.setdefault(name, ObjectState())
                rows.add_row_hash(hash_row("", b"", image), 1 if kind == ADD else -1)
            else:
                self._rename_object(name, image.decode(errors="surrogatepass"))

    def get_compiled_row_store(self, compile_kernel: Callable[[Kernel], Kernel]) -> CompiledRowStore:
        """Return the row store of compiled kernels, created on the first call.

        Keys are looked up in it first.
        """
        if self._row_store is None:
            names = ObjectNames(lambda name: self._kept_names.get(name, name), lambda name: self._epochs.get(name, 0))
            self._row_store = CompiledRowStore(compile_kernel, names, self._spill_unless_memory_left)
        return self._row_store

    def _spill_unless_memory_left(self, extra_bytes: int) -> bool:
        """Return True if the row store may take `extra_bytes` more bytes; otherwise spill all entries and return
        False.
        """
        assert self._row_store is not None
        if self._entry_bytes + self._row_store.size + extra_bytes <= self.max_memory or not len(self._row_store):
            return True
        self._spill()
        return False

    def _empty_object(self, name: str) -> None:
        """Start a new epoch of an object: its rows count as absent from now on."""
        self._epochs[name] = self._epochs.get(name, 0) + 1
        self._bump_store_version()
        self._keyless_rows.pop(name, None)

    def _rename_object(self, stored_name: str, new_name: str) -> None:
        """Rename the object stored as `stored_name` to `new_name`; an object that had the new name is emptied, and
        takes the old name.
        """
        before, replaced = self._current_names.get(stored_name, stored_name), self._kept_names.get(new_name, new_name)
        if stored_name == replaced:
            return
        self._kept_names[new_name], self._current_names[stored_name] = stored_name, new_name
        self._kept_names[before], self._current_names[replaced] = replaced, before
        self._empty_object(replaced)

    def _bump_store_version(self) -> None:
        if self._row_store is not None:
            self._row_store.version += 1

    def _change_key(self, object_key: tuple[str, bytes], kind: int, image: bytes) -> None:
        """Apply PUT, DELETE or PATCH to a key."""
        if self.patch is None and kind == PUT:
            image = hash_image(image)
        row_store = self._row_store
        if row_store is not None and (not len(row_store) or object_key[0] not in row_store.numbers):
            row_store = None
        before = (
            self._entries.get(object_key)
            if row_store is None
            else row_store.get_entry(*object_key) or self._entries.get(object_key)
        )
        entry = apply_change_to_entry(before, self._epochs.get(object_key[0], 0), kind, image, self.patch)
        if row_store is not None:
            row_store.put_entry(*object_key, entry)
            return
        self._entries[object_key] = entry
        self._entry_bytes += _entry_bytes(object_key, entry) if before is None else _entry_growth(before, entry)
        if self._entry_bytes + (0 if self._row_store is None else self._row_store.size) > self.max_memory:
            self._spill()

    def sum_object_states(self, max_objects: int = 1 << 20) -> dict[str, ObjectState]:
        """Return name -> state of every object that was changed, including empty objects.

        Objects beyond `max_objects` are summed up.
        """
        totals = _ObjectTotals(
            self, {name: rows for name, (_, rows) in self.get_emptied_or_keyless_objects().items()}, max_objects
        )
        for entries in self._iter_entry_partitions():
            for (kept, key), entry in entries.items():
                totals.add_final_row(kept, key, entry)
        if self._row_store is not None:
            for kept, (keys, total) in self._row_store.sum_row_hashes(self.current_name, totals.add_final_row).items():
                totals.get_or_create_total(kept).add_row_hash(total, 1, keys)
        return dict(sorted(totals.result.items()))

    def current_name(self, stored_name: str) -> str:
        """Return the current name of the object stored as `stored_name`."""
        return self._current_names.get(stored_name, stored_name)

    def current_epoch(self, stored_name: str) -> int:
        """Return how often the object was emptied."""
        return self._epochs.get(stored_name, 0)

    def get_emptied_or_keyless_objects(self) -> dict[str, tuple[int, ObjectState]]:
        """Return name -> (number of times emptied, keyless rows) for objects that were emptied or have rows without a
        key.
        """
        result = {}
        for kept in {**self._epochs, **self._keyless_rows}:
            name, rows = self._current_names.get(kept, kept), self._keyless_rows.get(kept) or ObjectState()
            total = rows.total * _derive_object_factor(name) % MODULUS
            result[name] = self._epochs.get(kept, 0), ObjectState(rows.keys, total)
        return result

    def iter_entries(self) -> Iterator[tuple[tuple[str, bytes], KeyEntry]]:
        """Yield ((object, key), entry) for all entries that `sum_objects` folds; entries of one key are in the order of
        the log.
        """
        if self._spill_files:
            self._spill()
        stored = () if self._row_store is None else self._row_store.iter_rows()
        for entries in (self._entries.items(), stored, *map(_read_entries, self._spill_files)):
            for (kept, key), entry in entries:
                yield (self._current_names.get(kept, kept), key), entry

    def close(self) -> None:
        """Remove the temporary files."""
        self._exit_stack.close()
        self._spill_files = []

    # -- more keys than memory -------------------------------------------------------------------------------------

    def _spill(self) -> None:
        """Write all entries to temporary files, partitioned by the hash of their key, and clear the memory."""
        if not self._spill_files:
            import tempfile

            folder = Path(self._exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="binlogtool-state-")))
            self._spill_files = [self._exit_stack.enter_context((folder / str(n)).open("w+b")) for n in range(_BUCKETS)]
        stored = () if self._row_store is None else self._row_store.iter_rows()
        for object_key, entry in chain(self._entries.items(), stored):
            data = msgspec.msgpack.encode((object_key, entry))
            bucket = self._spill_files[hash_image(object_key[1])[0] % _BUCKETS]
            bucket.write(len(data).to_bytes(4, "big") + data)
            self.spilled += 1
        self._entries, self._entry_bytes = {}, 0
        if self._row_store is not None:
            self._row_store.clear()

    def _iter_entry_partitions(self) -> Iterator[dict[tuple[str, bytes], KeyEntry]]:
        if self._spill_files:
            self._spill()
        if self._row_store is not None:  # the key's entry from before compiled code stored it
            self._entries = {
                place: one for place, one in self._entries.items() if self._row_store.get_entry(*place) is None
            }
        yield self._entries
        for file in self._spill_files:
            yield self._merge_spilled_file(file)

    def _merge_spilled_file(self, file: IO[bytes]) -> dict[tuple[str, bytes], KeyEntry]:
        """Return the entries of one temporary file, merged to one per key.

        Raises:
            LimitError: even this part of the keys does not fit into memory.
        """
        entries: dict[tuple[str, bytes], KeyEntry] = {}
        size = 0
        for object_key, entry in _read_entries(file):
            before = entries.get(object_key)
            entries[object_key] = merged = merge_entries(before, entry, self.patch)
            size += _entry_bytes(object_key, merged) if before is None else _entry_growth(before, merged)
            if size > self.max_memory:
                raise LimitError(f"the log has too many keys for --max-memory {self.max_memory:,}; raise it")
        return entries


class _ObjectTotals(msgspec.Struct):
    """Totals of the final rows per object; objects beyond `max_objects` are summed up as OTHERS."""

    state: ReplayState
    result: dict[str, ObjectState]
    max_objects: int

    def get_or_create_total(self, stored_name: str) -> ObjectState:
        """Return the total in which an object is counted; it is created on the first call."""
        name = self.state.current_name(stored_name)
        result_name = name if name in self.result or len(self.result) < self.max_objects else OTHERS
        return self.result.get(result_name) or self.result.setdefault(result_name, ObjectState())

    def add_final_row(self, stored_name: str, key: bytes, entry: KeyEntry) -> None:
        """Add the row that an entry leaves at the end, unless its object was emptied later."""
        total = self.get_or_create_total(stored_name)
        row = hash_final_row(self.state.current_name(stored_name), key, entry, self.state.patch)
        if row is not None and row[0] == self.state.current_epoch(stored_name):
            total.add_row_hash(row[1])


def _read_entries(file: IO[bytes]) -> Iterator[tuple[tuple[str, bytes], KeyEntry]]:
    decoder = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], KeyEntry])
    file.seek(0)
    while head := file.read(4):
        yield decoder.decode(file.read(int.from_bytes(head, "big")))
    file.seek(0, 2)


def _entry_bytes(object_key: tuple[str, bytes], entry: KeyEntry) -> int:
    size = ENTRY_BYTES + len(object_key[1]) + len(entry[2])
    return size + sum(map(len, entry[3])) if entry[3] else size


def _entry_growth(before: KeyEntry, after: KeyEntry) -> int:
    """Return how many more bytes an entry takes than its predecessor."""
    return len(after[2]) - len(before[2]) + sum(map(len, after[3])) - sum(map(len, before[3]))
