"""Digest of the rows that a replay leaves: the last change of each key counts, the order of the keys does not matter.

Each live row gives a number: BLAKE2b of object, key and image, 256 bits. The digest is their sum modulo 2^256, so it
is
the same for one log, for the log split into files, and for sums of parts that were computed elsewhere. Memory holds
one
entry per key; when they get too many, all are spilled to temporary files by a part of the key's hash, and each file
is
folded on its own at the end. A renamed object keeps its rows: they stay under the name that it had first, and are
hashed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.blake2 import blake2b
from binlogtool.formats.keeping import GONE, KNOWN, OPEN
from binlogtool.formats.layouts import Kernel
from binlogtool.formats.replay_rules import ADD, DELETE, DROP, PATCH, PUT, REMOVE, Change
from binlogtool.recovery.kept import Names, Rows

MODULUS = 1 << 256
OTHERS = "(other objects)"
"""Stands for all objects beyond those that fit into memory."""

ENTRY_BYTES = 400
"""What a key costs in memory beside its image: two keys, a tuple, a slot."""

_BUCKETS = 64

Patch = Callable[[bytes, bytes], bytes | None]
Entry = tuple[int, int, bytes, tuple[bytes, ...]]
"""epoch of the object, GONE/KNOWN/OPEN, image, operations that are still to be applied to it."""


def row_number(object: str, key: bytes, image: bytes) -> int:
    """Hash a row to the 256-bit integer that it adds to the digest."""
    name = _name(object)
    data = b"%d:%d:%b%b%b" % (len(name), len(key), name, key, image)
    return int.from_bytes(blake2b(data, digest_size=32).digest(), "big")


@lru_cache
def _weight_of(object: str) -> int:
    """Return the odd factor for the sum of an object's keyless rows, which may be counted under another name."""
    return int.from_bytes(blake2b(_name(object), digest_size=32).digest(), "big") | 1


@lru_cache
def _name(object: str) -> bytes:
    return object.encode(errors="surrogatepass")


def image_hash(image: bytes) -> bytes:
    """Hash an image that is only ever replaced as a whole, to 16 bytes that are kept in its place."""
    return blake2b(image, digest_size=16).digest()


def fold(before: Entry | None, epoch: int, kind: int, image: bytes, patch: Patch | None) -> Entry:
    """Return the entry of a key after one more change.

    Args:
        before: The entry so far; one of an earlier epoch counts as absent.
        epoch: How often the object was emptied.
        kind: PUT, DELETE or PATCH.
        image: The new image, or the operation of a PATCH.
        patch: See `Replay.patch`; None if images are always whole.
    """
    if kind == PUT:
        return epoch, KNOWN, image, ()
    if kind == DELETE:
        return epoch, GONE, b"", ()
    if before is None or before[0] != epoch:
        return epoch, OPEN, b"", (image,)
    _, state, old, operations = before
    if state == OPEN or operations or patch is None:
        return epoch, state, old, (*operations, image)
    return _patched(before, image, patch)


def _patched(before: Entry, operation: bytes, patch: Patch) -> Entry:
    epoch, state, old, _ = before
    changed = patch(old, operation)
    if changed is not None:
        return epoch, KNOWN, changed, ()
    return before if state == GONE else (epoch, state, old, (operation,))


def join(before: Entry | None, later: Entry, patch: Patch | None) -> Entry:
    """Merge two entries of one key; `later` was made after `before`."""
    if later[1] != OPEN or before is None or before[0] != later[0]:
        return later
    for operation in later[3]:
        before = fold(before, later[0], PATCH, operation, patch)
    return before


def settled(entry: Entry, patch: Patch | None) -> Entry:
    """Return the entry at the end of the replay: in an object that was seen empty, a key without an image was
    absent.
    """
    epoch, state, _, operations = entry
    if state != OPEN or not epoch:
        return entry
    last: Entry = epoch, GONE, b"", ()
    for operation in operations if patch is not None else ():
        last = fold(last, epoch, PATCH, operation, patch)
    return last


def final_image(entry: Entry) -> bytes:
    """Return what the digest hashes of an entry: the image, or a hash of it and of the operations that could not be
    applied.
    """
    _, state, image, operations = entry
    if state == KNOWN and not operations:
        return image
    digest = blake2b(image, digest_size=16)
    for operation in operations:
        digest.update(len(operation).to_bytes(8, "big") + operation)
    return b"\xff" + digest.digest()


def final_row(object: str, key: bytes, entry: Entry, patch: Patch | None) -> tuple[int, int] | None:
    """Return the epoch of the object and the hash of the row that is there at the end; None if there is no row."""
    if entry[1] == KNOWN and not entry[3]:
        return entry[0], row_number(object, key, entry[2])
    last = settled(entry, patch)
    return None if last[1] == GONE else (last[0], row_number(object, key, final_image(last)))


class ObjectState(msgspec.Struct):
    """The rows of one object.

    Attributes:
        keys: Live keys, or rows of an object without a key.
        total: The sum of their hashes, modulo 2^256.
    """

    keys: int = 0
    total: int = 0

    def add(self, number: int, count: int = 1, keys: int | None = None) -> None:
        """Add (count 1) or remove (count -1) a row by its hash, or add a sum over `keys` rows."""
        self.keys += count if keys is None else keys
        self.total = (self.total + count * number) % MODULUS

    @property
    def digest(self) -> str:
        """The total as 64 hexadecimal digits."""
        return f"{self.total:064x}"


class State(msgspec.Struct):
    """The rows that a replay leaves, folded from all changes. `close` removes the temporary files.

    Attributes:
        max_memory: Bytes that the entries may take before they are spilled.
        patch: See `Replay.patch`.
        spilled: Entries that were written to temporary files.
    """

    max_memory: int
    patch: Patch | None = None
    spilled: int = 0
    _entries: dict[tuple[str, bytes], Entry] = msgspec.field(default_factory=dict)
    _bytes: int = 0
    _epochs: dict[str, int] = msgspec.field(default_factory=dict)  # how often an object was emptied
    _kept: dict[str, str] = msgspec.field(default_factory=dict)  # name -> the one under which its entries are kept
    _names: dict[str, str] = msgspec.field(default_factory=dict)  # the other way round; both have the renamed ones only
    _rows: dict[str, ObjectState] = msgspec.field(default_factory=dict)
    _quick: Rows | None = None
    _files: list[IO[bytes]] = msgspec.field(default_factory=list)
    _open: ExitStack = msgspec.field(default_factory=ExitStack)

    def take(self, changes: Iterable[Change]) -> None:
        """Apply changes in the order of the log."""
        kept = self._kept
        for name, kind, key, image in changes:
            name = kept.get(name, name) if kept else name
            if kind < DROP:
                self._put((name, key), kind, image)
            elif kind == DROP:
                self._empty(name)
            elif kind <= REMOVE:
                rows = self._rows.get(name) or self._rows.setdefault(name, ObjectState())
                rows.add(row_number("", b"", image), 1 if kind == ADD else -1)
            else:
                self._rename(name, image.decode(errors="surrogatepass"))

    def quick(self, compiled: Callable[[Kernel], Kernel]) -> Rows:
        """Return the row store of compiled kernels, created on the first call. Keys that it holds are looked up there
        first.
        """
        if self._quick is None:
            names = Names(lambda name: self._kept.get(name, name), lambda name: self._epochs.get(name, 0))
            self._quick = Rows(compiled, names, self._may_grow)
        return self._quick

    def _may_grow(self, size: int) -> bool:
        """Return True if the row store may take `size` more bytes; otherwise spill all entries and return False."""
        assert self._quick is not None
        if self._bytes + self._quick.size + size <= self.max_memory or not len(self._quick):
            return True
        self._spill()
        return False

    def _empty(self, name: str) -> None:
        self._epochs[name] = self._epochs.get(name, 0) + 1
        self._renumbered()
        self._rows.pop(name, None)

    def _rename(self, one: str, name: str) -> None:
        """Call the object that is kept as `kept_name` `new_name`; the object that had that name is emptied, and takes
        the old name.
        """
        before, other = self._names.get(one, one), self._kept.get(name, name)
        if one == other:
            return
        self._kept[name], self._names[one] = one, name
        self._kept[before], self._names[other] = other, before
        self._empty(other)

    def _renumbered(self) -> None:
        if self._quick is not None:
            self._quick.version += 1

    def _put(self, place: tuple[str, bytes], kind: int, image: bytes) -> None:
        """Apply PUT, DELETE or PATCH to a key."""
        if self.patch is None and kind == PUT:
            image = image_hash(image)
        quick = self._quick
        if quick is not None and (not len(quick) or place[0] not in quick.numbers):
            quick = None
        before = self._entries.get(place) if quick is None else quick.get(*place) or self._entries.get(place)
        entry = fold(before, self._epochs.get(place[0], 0), kind, image, self.patch)
        if quick is not None:
            quick.put(*place, entry)
            return
        self._entries[place] = entry
        self._bytes += _weight(place, entry) if before is None else _growth(before, entry)
        if self._bytes + (0 if self._quick is None else self._quick.size) > self.max_memory:
            self._spill()

    def objects(self, most: int = 1 << 20) -> dict[str, ObjectState]:
        """Return the state of every object that was changed, by name, also of empty ones; beyond `max_objects` they
        are summed up.
        """
        sums = _Sums(self, {name: rows for name, (_, rows) in self.bases().items()}, most)
        for entries in self._parts():
            for (kept, key), entry in entries.items():
                sums.add(kept, key, entry)
        if self._quick is not None:
            for kept, (keys, total) in self._quick.add(self.called, sums.add).items():
                sums.of(kept).add(total, 1, keys)
        return dict(sorted(sums.result.items()))

    def called(self, kept: str) -> str:
        """Return the present name of the object that is kept as `kept_name`."""
        return self._names.get(kept, kept)

    def epoch(self, kept: str) -> int:
        """Return how often the object was emptied."""
        return self._epochs.get(kept, 0)

    def bases(self) -> dict[str, tuple[int, ObjectState]]:
        """Return the epoch and the keyless rows of each object that was emptied or has such rows, by name."""
        result = {}
        for kept in {**self._epochs, **self._rows}:
            name, rows = self._names.get(kept, kept), self._rows.get(kept) or ObjectState()
            total = rows.total * _weight_of(name) % MODULUS
            result[name] = self._epochs.get(kept, 0), ObjectState(rows.keys, total)
        return result

    def entries(self) -> Iterator[tuple[tuple[str, bytes], Entry]]:
        """Yield ((object, key), entry) of everything that `sum_objects` would fold; entries of one key in the order
        of the log.
        """
        if self._files:
            self._spill()
        quick = () if self._quick is None else self._quick.items()
        for entries in (self._entries.items(), quick, *map(_entries, self._files)):
            for (kept, key), entry in entries:
                yield (self._names.get(kept, kept), key), entry

    def close(self) -> None:
        """Remove the temporary files."""
        self._open.close()
        self._files = []

    # -- more keys than memory -------------------------------------------------------------------------------------

    def _spill(self) -> None:
        """Write all entries to the temporary files, bucketed by the hash of their key, and clear the memory."""
        if not self._files:
            import tempfile

            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="binlogtool-state-")))
            self._files = [self._open.enter_context((folder / str(n)).open("w+b")) for n in range(_BUCKETS)]
        quick = () if self._quick is None else self._quick.items()
        for place, entry in chain(self._entries.items(), quick):
            data = msgspec.msgpack.encode((place, entry))
            bucket = self._files[image_hash(place[1])[0] % _BUCKETS]
            bucket.write(len(data).to_bytes(4, "big") + data)
            self.spilled += 1
        self._entries, self._bytes = {}, 0
        if self._quick is not None:
            self._quick.clear()

    def _parts(self) -> Iterator[dict[tuple[str, bytes], Entry]]:
        if self._files:
            self._spill()
        if self._quick is not None:  # what a key was before compiled code took it
            self._entries = {place: one for place, one in self._entries.items() if self._quick.get(*place) is None}
        yield self._entries
        for file in self._files:
            yield self._folded(file)

    def _folded(self, file: IO[bytes]) -> dict[tuple[str, bytes], Entry]:
        """Return the entries of one temporary file, one per key.

        Raises:
            LimitError: even a part of the keys does not fit into memory.
        """
        entries: dict[tuple[str, bytes], Entry] = {}
        size = 0
        for place, entry in _entries(file):
            before = entries.get(place)
            entries[place] = joined = join(before, entry, self.patch)
            size += _weight(place, joined) if before is None else _growth(before, joined)
            if size > self.max_memory:
                raise LimitError(f"the log has too many keys for --max-memory {self.max_memory:,}; raise it")
        return entries


class _Sums(msgspec.Struct):
    """Adds up the final rows per object; objects beyond `max_objects` are summed up as OTHERS."""

    state: State
    result: dict[str, ObjectState]
    most: int

    def of(self, kept: str) -> ObjectState:
        """Return the total that an object is counted in, created on the first call."""
        name = self.state.called(kept)
        known = name if name in self.result or len(self.result) < self.most else OTHERS
        return self.result.get(known) or self.result.setdefault(known, ObjectState())

    def add(self, kept: str, key: bytes, entry: Entry) -> None:
        """Add the row of an entry, if there is one at the end."""
        one = self.of(kept)
        row = final_row(self.state.called(kept), key, entry, self.state.patch)
        if row is not None and row[0] == self.state.epoch(kept):
            one.add(row[1])


def _entries(file: IO[bytes]) -> Iterator[tuple[tuple[str, bytes], Entry]]:
    decoder = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], Entry])
    file.seek(0)
    while head := file.read(4):
        yield decoder.decode(file.read(int.from_bytes(head, "big")))
    file.seek(0, 2)


def _weight(place: tuple[str, bytes], entry: Entry) -> int:
    size = ENTRY_BYTES + len(place[1]) + len(entry[2])
    return size + sum(map(len, entry[3])) if entry[3] else size


def _growth(before: Entry, after: Entry) -> int:
    """Return how many bytes more an entry takes than the one before it."""
    return len(after[2]) - len(before[2]) + sum(map(len, after[3])) - sum(map(len, before[3]))
