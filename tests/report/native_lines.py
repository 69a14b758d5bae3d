"""Lines of dump by compiled code and by the general writer, and rows that are hard to write."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgpack
from hypothesis import strategies as st

import binlogtool
from binlogtool.core.record_and_selection_types import RecordBlock, Selection
from binlogtool.format_api.format import Hints
from binlogtool.limits import Limits
from binlogtool.report.dump_output_formats import CompiledLineEncoder, EncodedLines, RecordJsonEncoder
from tests.formats.tarantool import make


@dataclass
class Dumped:
    """What one way of writing gave: all lines, and how many of them compiled code wrote."""

    text: bytes
    native: int = 0
    others: int = 0


def general(
    path: Path, selection: Selection = Selection(), limits: Limits = Limits(), hints: Hints = Hints()
) -> Dumped:
    writer = RecordJsonEncoder()
    with binlogtool.open(path, backend="native", limits=limits, hints=hints) as log:
        return Dumped(
            b"".join(writer.encode_lines(part) for part in log.blocks(selection) if isinstance(part, RecordBlock))
        )


def native(path: Path, selection: Selection = Selection(), limits: Limits = Limits(), hints: Hints = Hints()) -> Dumped:
    writer, done = RecordJsonEncoder(), Dumped(b"")
    with binlogtool.open(path, backend="native", limits=limits, hints=hints) as log:
        for part in CompiledLineEncoder().encode_ranges(log.record_ranges(selection)):
            if isinstance(part, EncodedLines):
                done.text += part.data
                done.native += len(part.record)
            elif isinstance(part, RecordBlock):
                done.text += writer.encode_lines(part)
                done.others += len(part)
    return done


def same(path: Path, selection: Selection = Selection(), limits: Limits = Limits(), hints: Hints = Hints()) -> Dumped:
    """Both ways give the same; and it is JSON."""
    done = native(path, selection, limits, hints)
    assert done.text == general(path, selection, limits, hints).text
    for line in done.text.splitlines():
        json.loads(line)
    return done


def raw_row(key: int, value: bytes, time: float = make.TIME, kind: int = 3) -> bytes:
    """A row whose tuple is exactly these bytes."""
    header = msgpack.packb({0: kind, 2: 1, 3: key, 4: time})
    return header + b"\x82\x10\xcd\x02\x00\x21\x91" + value


texts = st.one_of(
    st.text(),
    st.text(st.characters(codec="utf-8", max_codepoint=0x9F)),
    st.sampled_from(["\u202e", "\u2028", "\ufeff", "\x7f", "\x00", "𝄞", '"\\/\b\f\n\r\t', "\ufffd", "$", "$bytes"]),
)
numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, -1, -32, -33, -128, -129, -(2**31)]),
)
scalars = st.one_of(
    st.none(), st.booleans(), numbers, st.floats(), st.floats(width=32), texts, st.binary(max_size=9),
    st.builds(msgpack.ExtType, st.integers(0, 9), st.binary(max_size=9)),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.one_of(texts, st.integers(0, 9)), inner, max_size=5)
    ),
    max_leaves=12,
)
times = st.one_of(
    st.floats(1.5e9, 2.5e9),
    st.floats(),
    st.integers(0, 2**32).map(lambda n: 1.7e9 + n / 2**22),
    st.sampled_from([0.0, 2.0**30, 2.0**30 - 0.25, 253402300799.99999, 253402300800.0, 1795232544.0000005]),
)
rows = st.builds(
    lambda kind, space, time, body, key, header, end: make.row(
        {0: kind, **header, 4: time} if header else {0: kind},
        {0x10: space, **key, 0x21: body, **end} if kind != 12 else None,
    ),
    st.sampled_from([2, 3, 3, 3, 4, 5, 9, 12, 17]),
    st.one_of(st.sampled_from([512, 513, 280, 281, 2**31, 2**64 - 1, 2**63]), st.integers(0, 2**64 - 1)),
    times,
    st.lists(values, max_size=5),
    st.one_of(st.just({}), st.builds(lambda v: {0x20: v}, st.lists(values, max_size=3))),
    st.one_of(
        st.builds(lambda r, n: {2: r, 3: n}, st.integers(0, 40), numbers.map(abs).filter(lambda n: n < 2**64)),
        st.builds(lambda n, d: {2: 1, 3: n, 8: d, 9: 1}, st.integers(0, 2**40), st.integers(0, 2**64 - 1)),
        st.just({}),
    ),
    st.one_of(st.just({}), st.just({0x15: 1}), st.just({0x2A: {}}), st.just({0x77: 5})),
)
hostile = st.one_of(
    st.binary(min_size=1, max_size=12),
    st.binary(max_size=20).map(lambda raw: bytes([0xA0 + len(raw)]) + raw),
    st.builds(
        lambda count, keys: bytes([0x80 + min(count, 15)]) + b"".join(bytes([0xA1, key, 0x01]) for key in keys),
        st.integers(0, 5), st.binary(max_size=5),
    ),
    st.integers(0, 2**64 - 1).map(lambda number: b"\xcb" + number.to_bytes(8, "big")),
    st.integers(0, 2**32 - 1).map(lambda number: b"\xca" + number.to_bytes(4, "big")),
    st.sampled_from([b"\xdc\xff\xff\x01", b"\xdf\x00\x00\x00\x01\xa1a\x01", b"\xdb\x00\x00\x00\x01a", b"\xd9\x20a"]),
)  # fmt: skip
