"""The state that a replay leaves, as a digest: last writer wins per key; the order of the keys does not matter.

Each live row gives a number: BLAKE2b of object, key and image, 256 bits. The digest is their sum modulo 2^256, so it is
the same for one log, for the log split in files, and for parts that were added up elsewhere. In memory there is an
entry for each key; when they get too many, all go to temporary files by a part of their hash, and each of these is
folded alone at the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO

import msgspec

from binlogtool.errors import LimitError
from binlogtool.formats.replays import ADD, DELETE, DROP, PATCH, PUT, REMOVE, Change

MODULUS = 1 << 256
ENTRY_BYTES = 400
"""What a key costs in memory beside its image: two keys, a tuple, a slot."""

_BUCKETS = 64

Patch = Callable[[bytes, bytes], bytes | None]

GONE, KNOWN, OPEN = 0, 1, 2
"""Deleted; the image is known; only changes are known, for the image stands in no record that was read."""

Entry = tuple[int, int, bytes, tuple[bytes, ...]]
"""epoch of the object, GONE/KNOWN/OPEN, image, operations that are still to be applied to it."""


def row_number(object: str, key: bytes, image: bytes) -> int:
    """What a row adds to the digest."""
    name = object.encode(errors="surrogatepass")
    head = b"%d:%d:" % (len(name), len(key))
    return int.from_bytes(blake2b(head + name + key + image, digest_size=32).digest(), "big")


def image_hash(image: bytes) -> bytes:
    """What is kept of an image that is never changed in parts."""
    return blake2b(image, digest_size=16).digest()


def fold(before: Entry | None, epoch: int, kind: int, image: bytes, patch: Patch | None) -> Entry:
    """The entry of a key after one more change. An entry of an earlier epoch is as if it were not there."""
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
    """Two entries of one key, made one after the other."""
    if later[1] != OPEN or before is None or before[0] != later[0]:
        return later
    for operation in later[3]:
        before = fold(before, later[0], PATCH, operation, patch)
    return before


def settled(entry: Entry, patch: Patch | None) -> Entry:
    """The entry at the end: of an object that was seen empty, a key without an image was not there."""
    epoch, state, _, operations = entry
    if state != OPEN or not epoch:
        return entry
    last: Entry = epoch, GONE, b"", ()
    for operation in operations if patch is not None else ():
        last = fold(last, epoch, PATCH, operation, patch)
    return last


def final_image(entry: Entry) -> bytes:
    """What the digest sees of an entry: the image, with what could not be applied to it behind it."""
    _, state, image, operations = entry
    if state == KNOWN and not operations:
        return image
    digest = blake2b(image, digest_size=16)
    for operation in operations:
        digest.update(len(operation).to_bytes(8, "big") + operation)
    return b"\xff" + digest.digest()


@dataclass(slots=True)
class ObjectState:
    """One object. keys: live keys, or rows of an object without key. total: the sum of their numbers."""

    keys: int = 0
    total: int = 0

    def add(self, number: int, count: int = 1) -> None:
        """One row more, or one less."""
        self.keys += count
        self.total = (self.total + count * number) % MODULUS

    @property
    def digest(self) -> str:
        """As text."""
        return f"{self.total:064x}"


@dataclass(slots=True)
class State:
    """The fold over all changes. max_memory: bytes; patch: see `Replay.patch`. `close` removes the temporary files."""

    max_memory: int
    patch: Patch | None = None
    spilled: int = 0
    _entries: dict[tuple[str, bytes], Entry] = field(default_factory=dict)
    _bytes: int = 0
    _epochs: dict[str, int] = field(default_factory=dict)  # how often an object was emptied
    _rows: dict[str, ObjectState] = field(default_factory=dict)
    _files: list[IO[bytes]] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def take(self, changes: Iterable[Change]) -> None:
        """The changes of one record, in order."""
        for name, kind, key, image in changes:
            if kind in (ADD, REMOVE):
                rows = self._rows.setdefault(name, ObjectState())
                rows.add(row_number(name, b"", image), 1 if kind == ADD else -1)
            elif kind == DROP:
                self._epochs[name] = self._epochs.get(name, 0) + 1
                self._rows.pop(name, None)
            else:
                self._put((name, key), kind, image)
        if self._bytes > self.max_memory:
            self._spill()

    def _put(self, place: tuple[str, bytes], kind: int, image: bytes) -> None:
        if self.patch is None and kind == PUT:
            image = image_hash(image)
        before = self._entries.get(place)
        entry = fold(before, self._epochs.get(place[0], 0), kind, image, self.patch)
        self._entries[place] = entry
        self._bytes += _weight(place, entry) - (0 if before is None else _weight(place, before))

    def objects(self) -> dict[str, ObjectState]:
        """Every object that was changed, by name; also those that are empty now."""
        result = {name: ObjectState(rows.keys, rows.total) for name, rows in self._rows.items()}
        for name in self._epochs:
            result.setdefault(name, ObjectState())
        for entries in self._parts():
            for (name, key), entry in entries.items():
                one, last = result.setdefault(name, ObjectState()), settled(entry, self.patch)
                if last[1] != GONE and last[0] == self._epochs.get(name, 0):
                    one.add(row_number(name, key, final_image(last)))
        return dict(sorted(result.items()))

    def close(self) -> None:
        """Removes what was written."""
        self._open.close()
        self._files = []

    # -- more keys than memory -------------------------------------------------------------------------------------

    def _spill(self) -> None:
        if not self._files:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="binlogtool-state-")))
            self._files = [self._open.enter_context((folder / str(n)).open("w+b")) for n in range(_BUCKETS)]
        for place, entry in self._entries.items():
            data = msgspec.msgpack.encode((place, entry))
            bucket = self._files[image_hash(place[1])[0] % _BUCKETS]
            bucket.write(len(data).to_bytes(4, "big") + data)
        self.spilled += len(self._entries)
        self._entries, self._bytes = {}, 0

    def _parts(self) -> Iterator[dict[tuple[str, bytes], Entry]]:
        if self._files:
            self._spill()
        yield self._entries
        for file in self._files:
            yield self._folded(file)

    def _folded(self, file: IO[bytes]) -> dict[tuple[str, bytes], Entry]:
        """The entries of one temporary file, each key once.

        Raises:
            LimitError: even a part of the keys does not fit into memory.
        """
        entries: dict[tuple[str, bytes], Entry] = {}
        size = 0
        for place, entry in _entries(file):
            before = entries.get(place)
            entries[place] = joined = join(before, entry, self.patch)
            size += _weight(place, joined) - (0 if before is None else _weight(place, before))
            if size > self.max_memory:
                raise LimitError(f"the log has too many keys for --max-memory {self.max_memory:,}; raise it")
        return entries


def _entries(file: IO[bytes]) -> Iterator[tuple[tuple[str, bytes], Entry]]:
    decoder = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], Entry])
    file.seek(0)
    while head := file.read(4):
        yield decoder.decode(file.read(int.from_bytes(head, "big")))
    file.seek(0, 2)


def _weight(place: tuple[str, bytes], entry: Entry) -> int:
    return ENTRY_BYTES + len(place[1]) + len(entry[2]) + sum(map(len, entry[3]))
