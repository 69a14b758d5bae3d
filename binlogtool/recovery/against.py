"""Read the position that a replay is compared with (`--against`): JSON, or a state file of the server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.replay_rules import Replay
from binlogtool.log.opened_file import readable

_MAX_STATE = 16 << 20


def position_of(given: Mapping[str, Any] | str | None, rules: Replay) -> Mapping[str, Any] | None:
    """Return the position that `--against` names.

    Args:
        source: A position, or the path of a JSON document (a position or a replay report) or of a state file of the
            server.
        rules: The format's replay rules, which know its state files.

    Raises:
        InputOutputError: the file cannot be read. UsageError: it holds no position.
    """
    if given is None or not isinstance(given, str):
        return given
    data = _read_state(given)
    known = None if rules.state is None else rules.state(os.path.basename(given), data)
    known = _position(data) if known is None else known
    if known is None:
        raise UsageError(f"--against {given}: neither a position as JSON nor a file of the server that holds one")
    return known


def _position(data: bytes) -> Mapping[str, Any] | None:
    """Return the position in a JSON document: its member `position`, else the document itself; None if it is not
    JSON.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    position = value.get("position", value) if isinstance(value, dict) else None
    return position if isinstance(position, dict) else None


def _read_state(path: str) -> bytes:
    """Read the first `_MAX_STATE_BYTES` of a file; of a snapshot that is enough."""
    file = readable(path)
    return file.read(0, min(file.size, _MAX_STATE))
