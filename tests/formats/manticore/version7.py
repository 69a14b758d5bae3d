"""What a real Manticore 2.8.2 makes of the samples of version 7, healthy and damaged, written down once.

`python -m tests.formats.manticore.version7 SEARCHD` writes tests/corpus/manticore/v7.json anew, by a server of the tree
that `.ci/server-tree manticore-2.8` makes. Paths and seconds are taken out of the server's words.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.formats.manticore import sphinx_server
from tests.formats.manticore.old_damages import CASES, Files
from tests.formats.mysql_binlog import server_trees

SAMPLES = Path(__file__).parents[2] / "corpus/manticore"
RECORDED = SAMPLES / "v7.json"
DATASETS = ("v7-mixed", "v7-reconfigure", "v7-rotation")
FLAGS = ("--replay-flags=accept-desc-timestamp", "--replay-flags=ignore-open-errors")
"""All that this server knows."""


def tree() -> str | None:
    """The server of the tree; None if it was not made."""
    searchd = server_trees.folder() / "manticore-2.8/bin/server"
    return str(searchd) if searchd.exists() else None


def files(name: str) -> Files:
    """The bytes of a sample's log and its list."""
    return {path.name: path.read_bytes() for path in sorted((SAMPLES / name).glob("binlog.*"))}


def written(folder: Path, content: Files) -> Path:
    """A directory that holds these files."""
    folder.mkdir()
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def cases() -> Iterator[tuple[str, Files]]:
    """Every damage."""
    mixed = files("v7-mixed")
    yield from ((name, make(mixed)) for name, make in CASES.items())


def says(searchd: str) -> Callable[[Path, bool], dict[str, Any]]:
    """Starts that server on a directory and tells how it went."""
    configuration = (SAMPLES / "v7.conf").read_text()

    def start(folder: Path, flags: bool) -> dict[str, Any]:
        real = sphinx_server.start(folder, configuration, flags=FLAGS if flags else (), server=searchd)
        log = [plain(line) for line in real.log.splitlines() if "binlog" in line]
        results = {f"SELECT COUNT(*) FROM {name}": [[count]] for name, count in real.counts.items()}
        return {"server_started": real.started, "log": log, "results": results}

    return start


def plain(line: str) -> str:
    """Without what differs from run to run."""
    line = re.sub(r"[^ ]*/binlog/", "<DIR>/", line)
    return re.sub(r"; [\d.]+ MB in [\d.]+ sec| in [\d.]+ sec$", "", line)


def record(searchd: str) -> dict[str, Any]:
    """What v7.json holds."""
    start = says(searchd)
    damaged = []
    with tempfile.TemporaryDirectory() as place:
        for name, content in cases():
            folder = written(Path(place) / name, content)
            said = {"server_says": start(folder, False), "server_says_with_flags": start(folder, True)}
            damaged.append({"name": name, **said})
    healthy = {name: {"server_replay": start(SAMPLES / name, False)} for name in DATASETS}
    return {"server": "Manticore 2.8.2 4e81114@190402", "datasets": healthy, "damaged": damaged}


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(sys.argv[1]), indent=1) + "\n")
