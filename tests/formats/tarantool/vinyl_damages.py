"""Seeded damage of a vinyl data directory: records of the metadata log, files of runs, snapshots, logs, names.

Checksums are recomputed (`make.block`), so that only the content is wrong.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import zstandard

from tests.formats.tarantool.make import END, block

Changes = dict[str, bytes | None]
"""Name below the data directory -> new content, None = removed."""

_UINT_KEYS = (0, 1, 2, 5, 6, 8, 9, 10, 12, 13, 14, 16)
_PLAIN, _ZSTD = bytes.fromhex("d5ba0bab"), bytes.fromhex("d5ba0bba")


class Record(NamedTuple):
    """One row of a vylog. header, type, keys: as in the file."""

    header: dict[int, Any]
    type: int
    keys: dict[int, Any]


def read_vylog(data: bytes) -> tuple[bytes, list[list[Record]]]:
    """The text header, and the records of each block. Independent of the program."""
    start = data.index(b"\n\n") + 2
    blocks, at = [], start
    while (magic := data[at : at + 4]) in (_PLAIN, _ZSTD):
        size = msgpack.Unpacker(io.BytesIO(data[at + 4 : at + 19])).unpack()
        payload = data[at + 19 : at + 19 + size]
        if magic == _ZSTD:
            payload = zstandard.ZstdDecompressor().stream_reader(payload).read()
        blocks.append(_rows(payload))
        at += 19 + size
    return data[:start], blocks


def _rows(payload: bytes) -> list[Record]:
    unpacker = msgpack.Unpacker(io.BytesIO(payload), strict_map_key=False)
    values = list(unpacker)
    return [Record(h, b[0x21][0], b[0x21][1]) for h, b in zip(values[::2], values[1::2], strict=True)]


def write_vylog(header: bytes, blocks: list[list[Record]]) -> bytes:
    """The file of these records."""
    return header + b"".join(block(b"".join(map(_packed, rows))) for rows in blocks if rows) + END


def _packed(record: Record) -> bytes:
    return msgpack.packb(record.header) + msgpack.packb({0x21: [record.type, record.keys]})


def newest(folder: Path, kind: str) -> Path:
    """The file of a kind with the greatest number."""
    return max(folder.glob(f"*.{kind}"))


# -- records -----------------------------------------------------------------------------------------------------------


def record_damage(folder: Path, rng: random.Random) -> tuple[str, Changes]:
    """One fault in the records of the newest metadata log."""
    path = newest(folder, "vylog")
    header, blocks = read_vylog(path.read_bytes())
    places = [(b, r) for b, rows in enumerate(blocks) for r in range(len(rows))]
    b, r = rng.choice(places if rng.random() < 0.5 else [p for p in places if p[0]] or places)
    rows, record = blocks[b], blocks[b][r]
    kind = rng.choice(["drop", "twice", "swap", "id", "id", "field", "unknown-key", "unknown-type", "number", "block"])
    if kind == "drop":
        del rows[r]
    elif kind == "twice":
        rows.insert(r, record)
    elif kind == "swap":
        ob, other = rng.choice(places) if rng.random() < 0.5 else (b, rng.randrange(len(rows)))
        rows[r], blocks[ob][other] = blocks[ob][other], record
    elif kind == "unknown-type":
        rows[r] = record._replace(type=rng.choice([18, 30, 127]))
    elif kind == "unknown-key":
        rows[r] = record._replace(keys={**record.keys, rng.choice([17, 40, 200]): 1})
    elif kind == "block":
        b = rng.randrange(len(blocks))
        what = rng.choice(["drop", "twice", "swap", "rest"])
        if what == "drop":
            del blocks[b]
        elif what == "rest":
            del blocks[b + 1 :]
        elif what == "twice":
            blocks.insert(b, blocks[b])
        else:
            other = rng.randrange(len(blocks))
            blocks[b], blocks[other] = blocks[other], blocks[b]
        return f"block-{what}", {path.name: write_vylog(header, blocks)}
    else:
        keys = dict(record.keys)
        numbers = [key for key in keys if key in _UINT_KEYS]
        if kind == "field" and keys:
            del keys[rng.choice(list(keys))]
        elif numbers:
            key = rng.choice(numbers)
            others = [row.keys[key] for rows_ in blocks for row in rows_ if key in row.keys]
            near = [keys[key] + 1, keys[key] - 1, 0]
            keys[key] = max(0, rng.choice(others if kind == "id" else near))
        rows[r] = record._replace(keys=keys)
    return f"{kind}-{record.type}", {path.name: write_vylog(header, blocks)}


# -- files -------------------------------------------------------------------------------------------------------------


def _bytes_damage(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(["flip", "flip", "cut", "cut", "empty", "append", "zero", "no-mark", "half-mark"])
    at = rng.randrange(max(1, len(data)))
    if kind == "flip" and data:
        return kind, data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == "zero":
        return kind, data[:at] + bytes(min(16, len(data) - at)) + data[at + 16 :]
    shapes = {
        "cut": data[:at],
        "empty": b"",
        "append": data + b"garbage!",
        "no-mark": data[:-4],
        "half-mark": data[:-2],
    }
    return kind, shapes.get(kind, data)


def file_damage(folder: Path, rng: random.Random) -> tuple[str, Changes]:
    """Bytes, presence or name of one file of vinyl."""
    suffix = rng.choice(["vylog", "vylog", "run", "run", "index", "index", "index"])
    names = [str(p.relative_to(folder)) for p in sorted(folder.rglob(f"*.{suffix}"))]
    if suffix == "vylog":
        names = names[-2:] if rng.random() < 0.3 else names[-1:]
    name = rng.choice(names)
    data = (folder / name).read_bytes()
    kind = rng.choice(["bytes", "bytes", "bytes", "removed", "inprogress", "inprogress-too", "swapped"])
    if kind == "removed":
        return f"{suffix}-removed", {name: None}
    if kind == "inprogress":
        return f"{suffix}-inprogress", {name: None, name + ".inprogress": data}
    if kind == "inprogress-too":
        return f"{suffix}-inprogress-too", {name + ".inprogress": data[: len(data) // 2]}
    if kind == "swapped" and suffix != "vylog":
        other = rng.choice(names)
        return f"{suffix}-swapped", {name: (folder / other).read_bytes(), other: data}
    what, damaged = _bytes_damage(data, rng)
    return f"{suffix}-{what}", {name: damaged}


def name_damage(folder: Path, rng: random.Random) -> tuple[str, Changes]:
    """Presence and names of snapshots and logs."""
    suffix = rng.choice(["snap", "xlog"])
    paths = sorted(folder.glob(f"*.{suffix}"))
    path = rng.choice([paths[-1], *paths])
    data, number = path.read_bytes(), int(path.stem)
    which = "newest" if path == paths[-1] else "older"
    kind = rng.choice(["removed", "short-name", "short-name-too", "inprogress", "other-number", "no-vclock", "empty"])
    changes: Changes = {path.name: None}
    if kind == "short-name":
        changes[f"{number}.{suffix}"] = data
    elif kind == "short-name-too":
        changes = {f"{number}.{suffix}": data}
    elif kind == "inprogress":
        changes[path.name + ".inprogress"] = data
    elif kind == "other-number":
        changes[f"{number + 1:020d}.{suffix}"] = data
    elif kind == "no-vclock":
        changes = {path.name: re.sub(rb"\nVClock: [^\n]*", b"", data, count=1)}
    elif kind == "empty":
        changes = {path.name: b""}
    return f"{which}-{suffix}-{kind}", changes


KINDS: tuple[Callable[[Path, random.Random], tuple[str, Changes]], ...] = (
    record_damage, record_damage, record_damage, file_damage, file_damage, name_damage,
)  # fmt: skip


def damage(folder: Path, seed: int) -> tuple[str, Changes]:
    """The damage of this seed."""
    rng = random.Random(seed)
    return rng.choice(KINDS)(folder, rng)


def apply(folder: Path, changes: Changes) -> None:
    """Makes the changes in a copy of the directory."""
    for name, data in changes.items():
        path = folder / name
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)
