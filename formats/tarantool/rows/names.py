"""Names of row types, keys and spaces, made from the enums of the schema."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.tarantool import schema

U64 = (1 << 64) - 1


class TypeNames(dict[int, str]):
    """Row type -> name; a type that is not known is its number."""

    def __missing__(self, row_type: int) -> str:
        return str(row_type & U64)


class SpaceNames(dict[int, str | None]):
    """Space id -> name, filled from `_space` rows as they are seen; an id that is not known is its number."""

    def __init__(self) -> None:
        super().__init__(schema.SYSTEM_SPACES)
        self[-1] = None

    def __missing__(self, space_id: int) -> str:
        return str(space_id & U64)


def _names(members: Any) -> dict[int, str]:
    return {int(member): member.name.lower() for member in members}


TYPE_NAMES = TypeNames({int(member): member.name for member in schema.RowType})
HEADER_NAMES = _names(schema.HeaderKey)
BODY_NAMES = _names(schema.BodyKey)
VYLOG_TYPES = _names(schema.VylogType)
VYLOG_KEYS = _names(schema.VylogKey)
OWN_KEYS: dict[int, dict[int, str]] = {
    schema.RowType.RAFT: _names(schema.RaftKey),
    schema.RowType.RUNINFO: _names(schema.RunInfoKey),
    schema.RowType.PAGEINFO: _names(schema.PageInfoKey),
    schema.RowType.ROWINDEX: _names(schema.RowIndexKey),
}
"""Row types whose bodies have a key set of their own."""


def body_key_name(row_type: int, key: int) -> str:
    """The name of a body key in a row of this type, or `key_0x..`."""
    return OWN_KEYS.get(row_type, BODY_NAMES).get(key) or f"key_0x{key:02x}"
