"""Text of a record in `dump`, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.format_api.record_text import RecordDescriber, RecordText, RowChanges, select_members

_HIDDEN = frozenset({"type", "meta_size", "data_size", "data", "control", "write_control", "sha512"})
_CONTROL_MEMBERS = ("size", "offset", "data_offset", "flags", "disk_size", "position")


def start_record_text() -> RecordDescriber:
    """Return the describer of the records of a log."""
    return _describe


def _describe(_type_name: str, body: Mapping[str, Any], everything: bool) -> RecordText:
    members = select_members(body, frozenset({"data"}) if everything else _HIDDEN)
    control = body.get("write_control", body.get("control"))
    if isinstance(control, Mapping) and not everything:
        members |= {name: control[name] for name in _CONTROL_MEMBERS if control.get(name)}
    data = body.get("data")
    return RecordText(members, changes=(RowChanges(({"after": {"data": data}},)),) if data else ())
