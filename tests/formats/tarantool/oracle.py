"""What `tarantoolctl cat --format=json` and `exact.lua` printed, made comparable with our records."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

BODY_KEYS = {"ops": "operations", "bloom": "9", "key_0x5c": "92"}
"""Our names of body keys where the oracle (2.6.0) has others or only numbers."""

NUMBERED = {
    "RAFT": {"term": "0", "vote": "1", "state": "2", "vclock": "3", "leader_id": "4", "is_leader_seen": "5"},
    "RAFT_PROMOTE": {"replica_id": "2", "lsn": "3", "term": "83", "vclock": "38"},
    "CONFIRM": {"replica_id": "2", "lsn": "3"},
    "ROLLBACK": {"replica_id": "2", "lsn": "3"},
}
"""Row types whose body keys the oracle prints as numbers."""

TYPE_NUMBERS = {"RAFT": 30, "RAFT_PROMOTE": 31, "CONFIRM": 40, "ROLLBACK": 41}


def rows(path: Path) -> list[dict[str, Any]]:
    """The oracle's rows; text that is no UTF-8 keeps its bytes as surrogates."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8", "surrogateescape")
    return [_loads(line) for line in text.split("\n") if line]


def _loads(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        named = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return json.loads(re.sub(r"(?<=[:\[,])-?(?:nan|inf)(?=[,\]}])", lambda m: named[m[0]], line))


def comparable(value: Any) -> Any:
    """A body of ours as the oracle would print it: 14 digits, text for bytes, plain text for decimals and uuids."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if len(value) == 1 and (mark := next(iter(value))) in ("$decimal", "$uuid"):
        return value[mark]
    if list(value) == ["$float"]:
        return number(float(value["$float"].replace("Infinity", "inf")))
    return {key: comparable(item) for key, item in value.items()}


def number(value: float) -> Any:
    """14 digits; whole numbers lose their point."""
    if not math.isfinite(value):
        return str(value)
    cut = float(f"{value:.14g}")
    return int(cut) if cut == int(cut) else cut


def oracle_value(value: Any) -> Any:
    """A value of the oracle in the same shape: whole doubles as integers, NaN comparable."""
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return [oracle_value(item) for item in value]
    if isinstance(value, dict):
        return {key: oracle_value(item) for key, item in value.items()}
    return value
