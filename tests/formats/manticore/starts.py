"""Directories of Sphinx 2.2 and Manticore 2.8 with random damage or random content, and what the server does with them.

`python -m tests.formats.manticore.starts sphinx-2.2 --corpus DIR [--seed 1 --count 300 --content]` starts the server
with each of them and compares whether it came up, the last transaction and the rows of each table with the replay.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import binlogtool
from binlogtool.errors import UnknownFormatError
from binlogtool.repair.diagnosis import list_unchecked
from binlogtool.repair.replay import ReplayDecision, ReplayResult
from tests.byte_damage import change_bytes
from tests.formats.manticore import make, sphinx_server, version7
from tests.formats.manticore.old_damages import META, Files, transactions

SERVERS = ("sphinx-2.2", "manticore-2.8")
SETS = {
    "sphinx-2.2": ("mixed-kill9", "rotation-24k", "clean-stop"),
    "manticore-2.8": ("v7-mixed", "v7-reconfigure", "v7-rotation"),
}
_HEAD = 8
_LENGTHS = (1, 4, 19, 60, 300)


class SearchServer(NamedTuple):
    """A server, the logs to change, and the configuration of their tables.

    version: of the logs that it writes. program: None = the installed one.
    """

    name: str
    logs: Mapping[str, Files]
    configuration: str
    version: int
    program: str | None = None


def search_server(name: str, corpus: Path | None) -> SearchServer | None:
    """A server by its name; None where it is not installed, or its logs are not there."""
    if name == "manticore-2.8":
        program = version7.tree()
        logs = {each: version7.files(each) for each in SETS[name]}
        configuration = (version7.SAMPLES / "v7.conf").read_text()
        return None if program is None else SearchServer(name, logs, configuration, 7, program)
    if sphinx_server.program() is None or corpus is None:
        return None
    home = corpus / "sphinx/generated"
    configuration = json.loads((home / "manifest.json").read_text())["datasets"]["mixed-kill9"]["tables_conf"]
    logs = {
        each: {
            path.name: path.read_bytes() for path in sorted((home / each).glob("binlog.*")) if path.suffix != ".lock"
        }
        for each in SETS[name]
    }
    return SearchServer(name, logs, configuration, 5)


# -- damage ------------------------------------------------------------------------------------------------------------


def damaged(rng: random.Random, files: Files) -> tuple[str, Files]:
    """Files with one or two random changes, and a description of them."""
    words, changed = _damage_one(rng, files)
    if rng.random() < 0.15:
        more, changed = _damage_one(rng, changed)
        words = f"{words}; {more}"
    return words, changed


def _damage_one(rng: random.Random, files: Files) -> tuple[str, Files]:
    name = META if META in files and rng.random() < 0.25 else rng.choice([*files])
    content = bytearray(files[name])
    kinds = ["cut", "flip", "zero", "random", "remove", "insert", "zeros-appended", "garbage-appended"]
    kind = rng.choice([*kinds, "lose"] if rng.random() < 0.3 else kinds)
    at = rng.randrange(min(len(content), 40)) if content and rng.random() < 0.3 else rng.randrange(len(content) or 1)
    length = rng.choice(_LENGTHS)
    if kind == "lose":
        return f"{name} lost", {each: data for each, data in files.items() if each != name}
    change_bytes(content, kind, at, length, rng)
    return f"{name} {kind} {at}+{length}", {**files, name: bytes(content)}


# -- content -----------------------------------------------------------------------------------------------------------


def with_other_content(rng: random.Random, files: Files) -> tuple[str, Files]:
    """Files whose transactions, all with right checksums, or whose list are not what the server wrote."""
    if META in files and rng.random() < 0.25:
        return _other_list(rng, files)
    logs = [each for each in files if each != META and transactions(files[each])]
    if not logs:
        return _other_list(rng, files)
    name = rng.choice(logs)
    txns = transactions(files[name])
    words: list[str] = []
    for _ in range(1 if rng.random() < 0.7 else 2):
        kind = rng.choice([*_EDITS])
        at = rng.randrange(len(txns))
        txns = _EDITS[kind](rng, at, txns)
        words.append(f"{name} {kind} {at}")
    return "; ".join(words), {**files, name: files[name][:_HEAD] + b"".join(txns)}


def _body_byte(rng: random.Random, at: int, txns: list[bytes]) -> list[bytes]:
    body = bytearray(txns[at][4:-4])
    if body:
        place = rng.randrange(min(len(body), 12)) if rng.random() < 0.6 else rng.randrange(len(body))
        body[place] = rng.choice((body[place] ^ 1 << rng.randrange(8), rng.randrange(256), 0, 255))
    return [*txns[:at], make.txn(bytes(body)), *txns[at + 1 :]]


def _body_cut(rng: random.Random, at: int, txns: list[bytes]) -> list[bytes]:
    body = txns[at][4:-4]
    return [*txns[:at], make.txn(body[: rng.randrange(len(body) or 1)]), *txns[at + 1 :]]


def _added(rng: random.Random, at: int, txns: list[bytes]) -> list[bytes]:
    number, tid, time = rng.choice((0, 1, 2, 9)), rng.randrange(1, 60), rng.choice((1, 1 << 50))
    body = rng.choice(
        (
            make.old_txn(1, number, tid, time, payload=b"\x00\x00"),
            make.old_txn(1, number, tid, time, payload=b"\x00\x01" + struct.pack("<q", rng.randrange(9))),
            make.old_index(rng.choice((number, len(txns))), rng.choice((b"rt1", b"other", b"nobody")), tid, time),
            make.old_txn(rng.choice((0, 4, 5, 6, 7, 8, 9, 60)), number, tid, time),
        )
    )
    return [*txns[:at], body, *txns[at:]]


def _moved(rng: random.Random, at: int, txns: list[bytes]) -> list[bytes]:
    rest = [*txns[:at], *txns[at + 1 :]]
    place = rng.randrange(len(rest) + 1)
    return [*rest[:place], txns[at], *rest[place:]]


_EDITS: Mapping[str, Callable[[random.Random, int, list[bytes]], list[bytes]]] = {
    "byte": _body_byte,
    "shorter": _body_cut,
    "without": lambda rng, at, txns: [*txns[:at], *txns[at + 1 :]],
    "twice": lambda rng, at, txns: [*txns[: at + 1], *txns[at:]],
    "moved": _moved,
    "added": _added,
}


def _other_list(rng: random.Random, files: Files) -> tuple[str, Files]:
    own = struct.unpack_from("<I", files[META], 4)[0] if len(files[META]) >= _HEAD else 5
    version = rng.choice((0, 1, 2, own - 1, own, own, own, own + 1))
    numbers = [rng.choice((1, 2, 3, 9)) for _ in range(rng.randrange(4))]
    setting = rng.choice((1, 1, 1, 0, 2))
    count = len(numbers) + rng.choice((0, 0, 0, 1, -1, 3)) if numbers else 0
    words = f"{META} version {version} setting {setting} numbers {numbers} count {count}"
    return words, {**files, META: make.meta(numbers, version, setting, count)}


# -- predictions -------------------------------------------------------------------------------------------------------


def compared(server: SearchServer, folder: Path) -> tuple[str, str]:
    """right, wrong or open, and what differs."""
    real = sphinx_server.start(folder, server.configuration, server=server.program)
    decisions: list[ReplayDecision] = []
    try:
        own = {"version": server.version, "tables": {}}  # the server that is started; its tables have saved nothing
        (ours,) = binlogtool.replay([folder], format="manticore", against=own, on_decision=decisions.append)
    except UnknownFormatError as error:
        return "open", f"{real.started} {real.reason}; said {error}"
    if real.reason == "no answer":
        return "open" if ours.starts is None else "wrong", f"said {ours.starts}; neither up nor gone in time"
    if ours.starts is None:
        return "open", f"{real.started} {real.reason}; said {list_unchecked(ours)}"
    if ours.starts != real.started:
        return "wrong", f"said {ours.starts} {ours.stop}, did {real.started} {real.reason}"
    if not real.started:
        return "right", ""
    tids = {name: max(tids) for file in ours.details["files"] for name, tids in file["recovered"].items()}
    differ = [f"{name} TID {tids.get(name)}, is {tid}" for name, tid in real.tids.items() if tids.get(name) != tid]
    keys = _rows(ours, decisions)
    queries = {one.object for one in decisions if one.type.startswith("PQ_")}  # deleted by tags, which the log hashes
    differ += [f"{name} {keys.get(name, 0)} rows, is {count}" for name, count in real.counts.items()
               if keys.get(name, 0) != count and name not in queries]  # fmt: skip
    if not differ:
        return "right", ""
    return ("open" if list_unchecked(ours) else "wrong"), "; ".join(differ)


def _rows(ours: ReplayResult, decisions: list[ReplayDecision]) -> dict[str, int]:
    """Documents of each table: all keys but that of settings that a RECONFIGURE brought."""
    with_settings = {one.object for one in decisions if one.type == "RECONFIGURE" and one.verb == "applied"}
    return {one.name: (one.keys or 0) - (one.name in with_settings) for one in ours.objects}


def score(server: SearchServer, seed: int, count: int, *, content: bool) -> Counter[str]:
    """Start the server so many times; print what is not predicted."""
    rng, results = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        for number in range(count):
            name = rng.choice([*server.logs])
            words, files = (with_other_content if content else damaged)(rng, server.logs[name])
            result, why = compared(server, version7.written(Path(place) / str(number), files))
            results[result] += 1
            if result != "right":
                print(f"{result}: {number} {name}: {words}: {why}", flush=True)
    return results


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--content", action="store_true")
    given = parser.parse_args()
    server = search_server(given.server, given.corpus)
    if server is None:
        parser.error("the server or its logs are not there")
    print(given.server, dict(score(server, given.seed, given.count, content=given.content)))


if __name__ == "__main__":
    main()
