"""Encode records as JSON (binlogtool/record/1): whole blocks at once, one line per record.

The columns of a block become structs that msgspec encodes in C; for their bodies see `log.body_json`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from binlogtool.log.body_json import BodyEncoder, finding_to_value
from binlogtool.log.jsonbytes import encode_json, encode_json_lines
from binlogtool.log.plain import DEFAULT_STYLE, JsonStyle, TimeFormatter, escape_unsafe
from binlogtool.log.records import RecordBlock, RecordChecksum


class ChecksumJson(msgspec.Struct, frozen=True, gc=False):
    """The member `checksum`; values are hexadecimal, most significant digit first."""

    algorithm: str
    stored: str
    computed: str
    ok: bool | None


class InnerJson(msgspec.Struct, frozen=True, gc=False):
    """The member `inner`."""

    offset: int
    size: int


class RecordJson(msgspec.Struct, gc=False):
    """One line; the members are in the order of the contract."""

    file: Any
    offset: int
    size: int
    record: int
    type: str
    seq: Any
    time: str | None
    object: Any
    origin: Any
    txn: Any
    checksum: ChecksumJson | None
    body: Any
    findings: Sequence[Any] = ()
    inner: InnerJson | msgspec.UnsetType | None = msgspec.UNSET


class RecordJsonEncoder:
    """Encodes blocks as lines of JSON."""

    def __init__(self, style: JsonStyle = DEFAULT_STYLE) -> None:
        self._style = style
        self._bodies = BodyEncoder(style)
        self._time = TimeFormatter()

    def encode_lines(self, block: RecordBlock) -> bytes:
        """Encode all records of the block."""
        structs = self.make_structs(block)
        try:
            return escape_unsafe(encode_json_lines(structs))
        except (UnicodeEncodeError, TypeError, OverflowError):
            return escape_unsafe(b"".join(map(self._encode_line, structs)))

    def to_values(self, block: RecordBlock) -> list[dict[str, Any]]:
        """Return all records of the block as parsed JSON."""
        return [msgspec.json.decode(text) for text in self.encode_lines(block).splitlines()]

    def make_structs(self, block: RecordBlock) -> list[RecordJson]:
        """Return the records as structs whose values msgspec can encode."""
        envelope, count = block.envelope, len(block)
        seq, txn, origin = envelope.seq, envelope.txn, envelope.origin
        if self._style.bigint == "string":
            seq, txn, origin = ([self._style.to_json_value(v) for v in column] for column in (seq, txn, origin))
        extras = _collect_extra_columns(block.extras or ())
        records = list(
            map(
                _make_record_struct(tuple(extras)),
                repeat(self._style.text_value(block.file), count),
                block.offset,
                block.size,
                block.record,
                envelope.type,
                seq,
                self._time.format_column(envelope.time),
                envelope.object,
                origin,
                txn,
                iter_checksums(block.checksum),
                self._bodies.encode(block.bodies) if block.bodies else repeat(None, count),
                repeat((), count),
                repeat(msgspec.UNSET, count),
                *(self._bodies.encode(column) for column in extras.values()),
            )
        )
        for i, findings in block.findings.items():
            records[i].findings = [self._style.to_json_value(finding_to_value(f)) for f in findings]
        if any(block.inner):
            for struct, inner in zip(records, block.inner, strict=True):
                struct.inner = msgspec.UNSET if inner is None else InnerJson(*inner)
        return records

    def _encode_line(self, struct: RecordJson) -> bytes:
        if not isinstance(struct.body, msgspec.Raw):
            struct.body = self._bodies.encode_one(struct.body)
        values = [getattr(struct, field) for field in struct.__struct_fields__]
        named = zip(struct.__struct_encode_fields__, values, strict=True)
        members = {name: value for name, value in named if value is not msgspec.UNSET}
        for name in members.keys() - {"file", "body", "checksum", "findings", "inner"}:
            if not isinstance(members[name], msgspec.Raw):
                members[name] = self._style.to_json_value(members[name])
        return encode_json(members) + b"\n"


@functools.lru_cache(256)
def _make_record_struct(names: tuple[str, ...]) -> Callable[..., RecordJson]:
    """Return `RecordJson` with additional members of any names."""
    if not names:
        return RecordJson
    fields = [(f"extra_{i}", Any, msgspec.UNSET) for i in range(len(names))]
    renamed = {f"extra_{i}": name for i, name in enumerate(names)}
    defined: Any = msgspec.defstruct("RecordJson", fields, bases=(RecordJson,), gc=False, rename=renamed)
    record_class: Callable[..., RecordJson] = defined
    return record_class


def _collect_extra_columns(extras: Sequence[Mapping[str, Any] | None]) -> dict[str, list[Any]]:
    """Return the additional members as columns, by name; UNSET where a record lacks one."""
    names = dict.fromkeys(name for members in extras if members for name in members)
    return {
        name: [members.get(name, msgspec.UNSET) if members else msgspec.UNSET for members in extras] for name in names
    }


def iter_checksums(column: Iterable[RecordChecksum | None]) -> Iterator[ChecksumJson | None]:
    """Yield the member `checksum` of each record; neighbours in one frame share the object."""
    last: RecordChecksum | None = None
    checksum: ChecksumJson | None = None
    for checked in column:
        if checked is not last:
            last = checked
            checksum = (
                None
                if checked is None
                else ChecksumJson(checked.algorithm, f"{checked.stored:08x}", f"{checked.computed:08x}", checked.ok)
            )
        yield checksum


class FieldJsonEncoder:
    """Encodes blocks as lines with some members only: `--fields`, `--no-offsets`.

    Args:
        fields: Top-level names, or paths into the body such as `body.tuple`; empty = all.
    """

    def __init__(self, encoder: RecordJsonEncoder, fields: Sequence[str] = (), offsets: bool = True) -> None:
        self._encoder = encoder
        self._fields = tuple(fields)
        self._dropped = () if offsets else ("offset", "size", "inner")

    def encode_lines(self, block: RecordBlock) -> bytes:
        """Encode all records of the block."""
        if not self._fields and not self._dropped:
            return self._encoder.encode_lines(block)
        return escape_unsafe(encode_json_lines(self.to_values(block)))

    def to_values(self, block: RecordBlock) -> list[dict[str, Any]]:
        """Return all records of the block as parsed JSON."""
        return [self._select_members(value) for value in self._encoder.to_values(block)]

    def _select_members(self, value: dict[str, Any]) -> dict[str, Any]:
        if self._fields:
            return {name: find_member(value, name) for name in self._fields}
        return {name: v for name, v in value.items() if name not in self._dropped}


def list_member_names() -> tuple[str, ...]:
    """Return the names of all members that a record of any format may have."""
    from binlogtool import formats

    extras = (name for known in formats.iter_formats() for name in known.output.extra_names)
    return tuple(dict.fromkeys((*RecordJson.__struct_fields__, *extras)))


def find_member(value: Any, path: str) -> Any:
    """Return the member at a path; None where there is none. A name with dots is found as well."""
    if isinstance(value, Mapping):
        if path in value:
            return value[path]
        name, _, subpath = path.partition(".")
        return find_member(value.get(name), subpath) if subpath else None
    return None
