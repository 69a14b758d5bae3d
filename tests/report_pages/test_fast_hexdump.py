"""`render.drawn`: the same lines as `render.hexdump`, by compiled code."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError
from binlogtool.schema import backends
from binlogtool.schema.annotation_types import AddressSpace, FieldRow, write_hexdump_lines
from binlogtool.terminal.hexdump import HexdumpOptions, draw_hexdump_in_chunks, join_small_pieces, render_hexdump

OPTIONS = (
    HexdumpOptions(), HexdumpOptions(border="ascii", width=8), HexdumpOptions(width=5, squeeze=False),
    HexdumpOptions(color=True), HexdumpOptions(depth=2),
    HexdumpOptions(columns=90),
)  # fmt: skip


def lines(path: Path, options: HexdumpOptions, compile_: object, *, folds: bool) -> bytes:
    with binlogtool.open(path) as log:
        pieces = [one for one in binlogtool.annotate_log(log, folds=folds).pieces if one.rows]
    parts = (draw_hexdump_in_chunks(*one, options, i == 0, compile_) for i, one in enumerate(join_small_pieces(pieces)))
    return b"".join(text for part in parts for text in part)


def plain(path: Path, options: HexdumpOptions) -> bytes:
    with binlogtool.open(path) as log:
        pieces = [one for one in binlogtool.annotate_log(log).pieces if one.rows]
    made = [line for i, one in enumerate(pieces) for line in render_hexdump(one.rows, one.spaces, options, i == 0)]
    return "".join(line + "\n" for line in made).encode("utf-8", "backslashreplace")


@pytest.mark.full
@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_samples_are_drawn_as_line_by_line(samples: Path, number: int) -> None:
    options, count = OPTIONS[number], 0
    backend = backends.choose_backend("native")
    for path in sorted(set(samples.rglob("*")) - set(samples.rglob("*.gz")))[number::12]:
        try:
            expected = plain(path, options) if path.is_file() and path.stat().st_size < 9_000 else b""
        except BinlogtoolError:
            continue
        if expected:
            count += 1
            assert lines(path, options, backend.compile_kernel, folds=True) == expected, path
            assert lines(path, options, None, folds=True) == expected, path
    assert count > 1


def test_the_kernel_as_python_and_as_native_code_draw_the_same(samples: Path) -> None:
    path = samples / "manticore/v16-mixed/binlog.0000"
    native = backends.choose_backend("native").compile_kernel
    assert native(write_hexdump_lines) is not write_hexdump_lines
    assert lines(path, OPTIONS[0], lambda function: function, folds=True) == lines(path, OPTIONS[0], native, folds=True)


def test_labels_that_are_no_plain_ones() -> None:
    """Letters of several bytes, `%`, and NUL in a path; numbers beyond 64 bits; bytes that were not given."""
    data = bytes(range(64))
    values = ("ü", "100 %d", 1 << 70, -1, None, "\0", "a\nb")
    rows = [FieldRow(f"p\0%s[{i}].ö", 4 * i, 4 * i + 4, value, ok=bool(i % 2)) for i, value in enumerate(values)]
    rows += [FieldRow("whole", 28, 64, data[28:]), FieldRow("beyond", 62, 70, 5)]
    spaces, compile_ = (AddressSpace("", 0, data),), backends.choose_backend("native").compile_kernel
    made = b"".join(draw_hexdump_in_chunks(rows, spaces, OPTIONS[0], True, compile_)).decode()
    assert made.splitlines() == list(render_hexdump(rows, spaces, OPTIONS[0]))
