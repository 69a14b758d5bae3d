"""Directories of Sphinx 2.2 and Manticore 2.8 with random damage or random content, and what the server does with them.

`python -m tests.formats.manticore.starts sphinx-2.2 --corpus DIR --damages 300 --contents 300 [--first 0] [--record]`
starts the server with each of them and compares whether it came up, the last transaction and the rows of each table
with the replay. What it did is recorded.
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
from binlogtool.prediction.predict_replay import ReplayDecision, ReplayResult
from binlogtool.repair.diagnose_startup import list_unchecked
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


VERSIONS: Mapping[str, int] = {"sphinx-2.2": 5, "manticore-2.8": 7}


def logs_of(name: str, corpus: Path | None) -> Mapping[str, Files] | None:
    """The logs of a server that are changed; None where they are not there."""
    if name == "manticore-2.8":
        return {each: version7.files(each) for each in SETS[name]}
    home = None if corpus is None else corpus / "sphinx/generated"
    if home is None or not home.exists():
        return None
    return {
        each: {
            path.name: path.read_bytes() for path in sorted((home / each).glob("binlog.*")) if path.suffix != ".lock"
        }
        for each in SETS[name]
    }


def search_server(name: str, corpus: Path | None) -> SearchServer | None:
    """A server by its name; None where it is not installed, or its logs are not there."""
    logs, program = logs_of(name, corpus), version7.tree()
    if name == "manticore-2.8" and logs is not None:
        configuration = (version7.SAMPLES / "v7.conf").read_text()
        return None if program is None else SearchServer(name, logs, configuration, VERSIONS[name], program)
    if sphinx_server.program() is None or corpus is None or logs is None:
        return None
    manifest = json.loads((corpus / "sphinx/generated/manifest.json").read_text())
    return SearchServer(name, logs, manifest["datasets"]["mixed-kill9"]["tables_conf"], VERSIONS[name])


# -- damage ------------------------------------------------------------------------------------------------------------


def damaged(rng: random.Random, files: Files) -> tuple[str, Files]:
    """Files with one or two random changes, and a description of them."""
    words, changed = _damage_one(rng, files)
    if rng.random() < 0.15:
        more, changed = _damage_one(rng, changed)
        words = f"{words}; {more}"
    return words, changed


def _damage_one(rng: random.Random, files: Files) -> tuple[str, Files]:
    if not files:
        return "nothing is left", files
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


class Did(NamedTuple):
    """Outcome: did the server come up (None = neither up nor gone in time), and the TID and rows of each table."""

    started: bool | None
    tables: Mapping[str, tuple[int | None, int]] = {}

    @property
    def text(self) -> str:
        """As it is recorded."""
        return json.dumps(self.started if not self.started else self.tables, sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Did:
        """Read what was recorded."""
        value = json.loads(text)
        return cls(value) if value in (None, False) else cls(True, {name: (*each,) for name, each in value.items()})


def started(server: SearchServer, folder: Path) -> tuple[Did, str]:
    """Start the server; also return its last words."""
    real = sphinx_server.start(folder, server.configuration, server=server.program)
    if not real.started:
        return Did(None if real.reason == "no answer" else False), real.reason
    return Did(True, {name: (real.tids.get(name), count) for name, count in real.counts.items()}), ""


def compared(version: int, folder: Path, did: Did) -> tuple[str, str]:
    """right, wrong or open, and what differs. version: of the logs that the server writes."""
    decisions: list[ReplayDecision] = []
    try:
        own = {"version": version, "tables": {}}  # the server that is started; its tables have saved nothing
        (ours,) = binlogtool.replay([folder], format="manticore", against=own, on_decision=decisions.append)
    except UnknownFormatError as error:
        return "open", f"{did.started}; said {error}"
    if ours.starts is None:
        return "open", f"{did.started}; said {list_unchecked(ours)}"
    if ours.starts != did.started:
        depends = ours.starts and list_unchecked(ours)
        return "open" if depends else "wrong", f"said {ours.starts} {ours.stop}, did {did.started}"
    if not did.started:
        return "right", ""
    tids = {name: max(tids) for file in ours.details["files"] for name, tids in file["recovered"].items()}
    differ = [f"{name} TID {tids.get(name)}, is {tid}"
              for name, (tid, _) in did.tables.items() if tid is not None and tids.get(name) != tid]  # fmt: skip
    keys = _rows(ours, decisions)
    queries = {one.object for one in decisions if one.type.startswith("PQ_")}  # deleted by tags, which the log hashes
    differ += [f"{name} {keys.get(name, 0)} rows, is {count}" for name, (_, count) in did.tables.items()
               if keys.get(name, 0) != count and name not in queries]  # fmt: skip
    if not differ:
        return "right", ""
    return ("open" if list_unchecked(ours) else "wrong"), "; ".join(differ)


def _rows(ours: ReplayResult, decisions: list[ReplayDecision]) -> dict[str, int]:
    """Documents of each table: all keys but that of settings that a RECONFIGURE brought."""
    with_settings = {one.object for one in decisions if one.type == "RECONFIGURE" and one.verb == "applied"}
    return {one.name: (one.keys or 0) - (one.name in with_settings) for one in ours.objects}


GENERATORS: Mapping[str, Callable[[random.Random, Files], tuple[str, Files]]] = {
    "damages": damaged, "contents": with_other_content,
}  # fmt: skip


def changed(logs: Mapping[str, Files], generator: str, number: int) -> tuple[str, Files]:
    """The files of the random change of a number, and a description."""
    rng = random.Random(f"{generator} {number}")
    name = rng.choice([*logs])
    words, files = GENERATORS[generator](rng, logs[name])
    return f"{name}: {words}", files


def score(server: SearchServer, generator: str, numbers: range) -> tuple[Counter[str], list[Did]]:
    """Start the server with random changes; print what is not predicted."""
    results, all_did = Counter[str](), list[Did]()
    with tempfile.TemporaryDirectory() as place:
        for number in numbers:
            words, files = changed(server.logs, generator, number)
            folder = version7.written(Path(place) / str(number), files)
            did, reason = started(server, folder)
            result, why = compared(server.version, folder, did)
            results[result] += 1
            all_did.append(did)
            if result != "right":
                print(f"{result}: {number} {words}: {why} {reason}", flush=True)
    return results, all_did


RECORDED = Path(__file__).parent / "recorded_starts.json"
"""Reactions of the servers to random changes, by number: "outcomes", and which of them as numbers, "did"."""


def recorded(server: str, generator: str) -> list[Did]:
    """Return what a server did with each random change."""
    known = json.loads(RECORDED.read_text())[f"{server} {generator}"]
    return [Did.parse(known["outcomes"][int(number)]) for number in known["did"].split()]


def _keep(server: str, generator: str, first: int, did: list[Did]) -> None:
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    key = f"{server} {generator}"
    before = recorded(server, generator)[:first] if key in known else []
    texts = [one.text for one in (*before, *did)]
    outcomes = list(dict.fromkeys(texts))
    known[key] = {"outcomes": outcomes, "did": " ".join(str(outcomes.index(text)) for text in texts)}
    RECORDED.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--corpus", type=Path)
    for name in GENERATORS:
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    server = search_server(given.server, given.corpus)
    if server is None:
        parser.error("the server or its logs are not there")
    for name in GENERATORS:
        results, did = score(server, name, range(given.first, given.first + getattr(given, name)))
        print(given.server, name, dict(results), flush=True)
        if given.record and did:
            _keep(given.server, name, given.first, did)


if __name__ == "__main__":
    main()
