"""What servers log about a replay, and a replay held against it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import binlogtool
from binlogtool.prediction.predict_replay import ReplayResult

TABLE = re.compile(
    r"binlog: (?:table|index) (\S+): (?:recovered from tid (\d+) to|skipped at tid (\d+) and max binlog) tid (\d+)$"
)
STATS = re.compile(r"(\d+) (commits|updates|reconfigure|pq-add|pq-delete|pq-add-delete)\b")


def replayed_files(lines: list[str]) -> list[dict[str, Any]]:
    """The files that a server says it replayed, with its counts and TIDs."""
    out: list[dict[str, Any]] = []
    for line in lines:
        if start := re.match(r"binlog: replaying log .*/(\S+)$", line):
            out.append({"file": start[1], "recovered": {}})
        elif table := TABLE.match(line):
            out[-1]["recovered"][table[1]] = [int(table[2] or table[3]), int(table[4])]
        elif line.startswith("binlog: replay stats"):
            out[-1]["commits"] = sum(int(count) for count, _ in STATS.findall(line))
            out[-1]["tables"] = int(re.findall(r"(\d+) (?:tables|indexes)", line)[0])
    return [one for one in out if "commits" in one]


def saved_at_start(lines: list[str]) -> dict[str, int]:
    """The TIDs that the tables had before the first file."""
    saved: dict[str, int] = {}
    for one in replayed_files(lines):
        for name, (since, _) in one["recovered"].items():
            saved.setdefault(name, since)
    return saved


def replay(path: Path, **how: Any) -> ReplayResult:
    (result,) = binlogtool.replay([path], format="manticore", backend="python", **how)
    return result


def compare(path: Path, says: Mapping[str, Any], saved: Mapping[str, int], policy: str) -> ReplayResult:
    """Started or not, and per file the very numbers of the server's log."""
    result = replay(path, policy=policy, against={"tables": saved})
    assert result.starts == says["server_started"], result.stop
    mine = [{key: one[key] for key in ("file", "recovered", "commits", "tables")} for one in result.details["files"]]
    theirs = replayed_files(says["log"])
    if says["server_started"]:  # before a fatal error a server does not sum up
        named = [one["file"] for one in theirs]
        assert [one for one in mine if one["file"] in named] == theirs
    return result
