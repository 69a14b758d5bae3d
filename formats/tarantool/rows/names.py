"""Names of row types, keys and spaces, made from the enums of `codes`."""

from __future__ import annotations

from typing import Any

from binlogtool.formats.tarantool import codes

UINT64_MASK = (1 << 64) - 1


class TypeNames(dict[int, str]):
    """Row type -> name; an unknown type is shown as its number."""

    def __missing__(self, row_type: int) -> str:
        return str(row_type & UINT64_MASK)


class SpaceNames(dict[int, str | None]):
    """Space id -> name, extended from `_space` rows as they are read; an unknown id is shown as its number."""

    def __init__(self) -> None:
        super().__init__(codes.SYSTEM_SPACES)
        self[-1] = None

    def __missing__(self, space_id: int) -> str:
        return str(space_id & UINT64_MASK)


def _lower_case_names(members: Any) -> dict[int, str]:
    return {int(member): member.name.lower() for member in members}


TYPE_NAMES = TypeNames({int(member): member.name for member in codes.RowType})
HEADER_NAMES = _lower_case_names(codes.HeaderKey)
BODY_NAMES = _lower_case_names(codes.BodyKey)
VYLOG_TYPES = _lower_case_names(codes.VylogType)
VYLOG_KEYS = _lower_case_names(codes.VylogKey)
BODY_NAMES_BY_TYPE: dict[int, dict[int, str]] = {
    codes.RowType.RAFT: _lower_case_names(codes.RaftKey),
    codes.RowType.RUNINFO: _lower_case_names(codes.RunInfoKey),
    codes.RowType.PAGEINFO: _lower_case_names(codes.PageInfoKey),
    codes.RowType.ROWINDEX: _lower_case_names(codes.RowIndexKey),
}
"""Row types whose bodies have a key set of their own."""


def name_body_key(row_type: int, key: Any) -> str:
    """Return the name of a body key in a row of this type, `key_0x..`, or `key_'..'` for a key that is no number."""
    if type(key) is not int:
        return f"key_{key!r}"[:80]
    return BODY_NAMES_BY_TYPE.get(row_type, BODY_NAMES).get(key) or f"key_0x{key:02x}"
