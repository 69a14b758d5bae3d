"""Read the position that a replay is compared with (`--against`): JSON, or a state file of the server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.replay_rules import ReplayRules
from binlogtool.log.opened_file import make_readable_file

_MAX_STATE_BYTES = 16 << 20


def read_position(source: Mapping[str, Any] | str | None, rules: ReplayRules) -> Mapping[str, Any] | None:
    """Return the position that `--against` names.

    Args:
        source: A position, or the path of a JSON document (a position or a replay report) or of a state file of the
            server.
        rules: The format's replay rules, which know its state files.

    Raises:
        InputOutputError: the file cannot be read. UsageError: it holds no position.
    """
    if source is None or not isinstance(source, str):
        return source
    data = _read_file_head(source)
    position = None if rules.parse_state is None else rules.parse_state(os.path.basename(source), data)
    position = _parse_position_json(data) if position is None else position
    if position is None:
        raise UsageError(f"--against {source}: neither a position as JSON nor a file of the server that holds one")
    return position


def _parse_position_json(data: bytes) -> Mapping[str, Any] | None:
    """Return the position in a JSON document: its member `position`, else the document itself; None if it is not
    JSON.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    position = value.get("position", value) if isinstance(value, dict) else None
    return position if isinstance(position, dict) else None


def _read_file_head(path: str) -> bytes:
    """Read the first `_MAX_STATE_BYTES` of a file; of a snapshot that is enough."""
    file = make_readable_file(path)
    return file.read(0, min(file.size, _MAX_STATE_BYTES))
