"""Native code made from the generated walks and the kernels: every format's is there, and it says what Python says."""

from __future__ import annotations

import base64
import ctypes
import os
import random
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import pytest

import binlogtool
from binlogtool.errors import BinlogtoolError, InputOutputError
from binlogtool.format_api.schema_fields import Int64s, MutableInt64s, UInt8s, kernel
from binlogtool.formats.binlog_events.sql.kernels.event_script_kernels import classify_plain_text, write_base64_line
from binlogtool.native_build import collect_kernels as manifest
from binlogtool.native_build.build import compile_library
from binlogtool.schema import backends, native_library
from binlogtool.schema.backends import NativeBackend
from binlogtool.schema.c_codegen import CLibrarySource, KernelError
from binlogtool.schema.native_library import NativeLibrary
from binlogtool.spark.session import write_package_zip
from tests.compiling import CompilingBackend, zig_cache

SAMPLES = Path(__file__).parents[1] / "corpus"
STEP = 3


@kernel()
def add_step(value: int) -> int:
    """One constant more."""
    return value + STEP


@kernel(add_step)
def sum_all(values: Int64s, out: MutableInt64s, count: int) -> int:
    """The sum of all values, each with a step."""
    total: int = 0
    for i in range(count):
        out[i] = add_step(values[i])
        total += out[i]
    return total


@kernel()
def take(out: MutableInt64s, place: int) -> int:
    """Stores what it returns, so that the order of two calls shows."""
    out[0] = out[0] * 10 + place
    return out[0]


@kernel(take)
def mixed(out: MutableInt64s, a: int, b: int) -> tuple[int, int]:
    """What Python and C do differently."""
    first = take(out, 1) - take(out, 2)
    chosen = (a or b) + (a and b)
    for i in range(3):
        b += i
    power = (a << 3) ^ (b >> 1) ^ ~a
    return first * 1000 + a // b * 7 + a % b + i + (1 if -5 < a < 5 else 0), power + chosen + max(a, b) - abs(a)


@kernel()
def uses_a_list(values: Int64s) -> Any:
    return sorted(values)


@kernel()
def has_no_types(buf, place):  # type: ignore[no-untyped-def]
    return buf[place]


@kernel()
def has_a_vague_type(buf: Any, place: int) -> int:
    return int(buf[place])


@kernel()
def writes_what_it_reads(values: Int64s) -> int:
    values[0] = 1  # type: ignore[index]
    return 0


@kernel(add_step)
def takes_an_element_of_a_number(value: int) -> int:
    return add_step(value)[0]  # type: ignore[index,no-any-return]


@kernel(sum_all)
def passes_bytes_as_integers(buf: UInt8s, out: MutableInt64s) -> int:
    return sum_all(buf, out, 1)


@kernel()
def returns_more_than_it_declares(value: int) -> int:
    return value, value  # type: ignore[return-value]


class Pairs(NamedTuple):
    """Columns that travel together, and how many entries they have."""

    keys: Int64s
    sums: MutableInt64s
    text: UInt8s
    entries: int


class Other(NamedTuple):
    keys: Int64s


@kernel(add_step)
def sum_of(pairs: Pairs, place: int) -> int:
    pairs.sums[place] = add_step(pairs.keys[place]) + pairs.text[place]
    return pairs.sums[place]


@kernel(sum_of)
def sum_of_pairs(pairs: Pairs, first: int) -> int:
    pairs_count = 0
    for place in range(first, pairs.entries):
        pairs_count += sum_of(pairs, place)
    return pairs_count


@kernel(sum_of_pairs)
def sum_of_columns(keys: Int64s, sums: MutableInt64s, text: UInt8s, count: int) -> int:
    return sum_of_pairs(Pairs(keys, sums, text, count - 1), 0)


@kernel(sum_of_pairs)
def passes_another_struct(other: Other) -> int:
    return sum_of_pairs(other, 0)  # type: ignore[arg-type]


@kernel()
def keeps_a_struct(pairs: Pairs) -> int:
    kept = pairs
    return kept.entries


@kernel()
def uses_no_field(pairs: Pairs) -> int:
    return pairs.size  # type: ignore[attr-defined,no-any-return]


@kernel()
def reversed_bytes(texts: Int64s, buf: MutableInt64s, out: UInt8s, size: int) -> tuple[int, int]:
    """Integers under the names that bytes often have, and bytes under another one."""
    stored_0 = 7
    for i in range(size):
        buf[i], stored_0 = texts[i] + out[size - 1 - i], stored_0 + 1
    return buf[0], stored_0


def test_a_kernel_gives_what_python_gives() -> None:
    backend = CompilingBackend()
    out, values = memoryview(bytearray(32)).cast("q"), memoryview(bytearray(32)).cast("q")
    for i in range(4):
        values[i] = i
    assert backend.compile_kernel(sum_all)(values, out, 4) == 18
    assert list(out) == [3, 4, 5, 6]
    run = backend.compile_kernel(mixed)
    for a in (-17, -4, 0, 3, 1 << 40):
        for b in (-9, 2, 5):
            one, other = memoryview(bytearray(8)).cast("q"), [0]
            assert run(one, a, b) == mixed(other, a, b)
            assert list(one) == other


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (uses_a_list, "the type of the result is typing.Any"),
        (
            has_no_types,
            "has_no_types: the type of parameter 'buf' is None; declare it as int, bool, an array type",
        ),
        (has_a_vague_type, "has_a_vague_type: the type of parameter 'buf' is typing.Any; declare it"),
        (writes_what_it_reads, "writes to values, which is declared as read only"),
        (takes_an_element_of_a_number, "takes an element of add_step(value), which returns 1 value"),
        (passes_bytes_as_integers, "passes the array buf where another type is declared"),
        (returns_more_than_it_declares, "returns 2 values and declares 1"),
        (passes_another_struct, "passes other where tests.schema.test_native_code.Pairs is declared"),
        (keeps_a_struct, "uses the struct pairs other than by a field or as an argument"),
        (uses_no_field, "uses pairs.size, which is no field of a struct"),
    ],
)
def test_what_is_no_kernel_is_refused(function: Any, message: str) -> None:
    with pytest.raises(KernelError, match=re.escape(message)):
        CompilingBackend().compile_kernel(function)


def test_names_of_parameters_mean_nothing() -> None:
    out, big = memoryview(bytearray(16)).cast("q"), 1 << 40
    assert CompilingBackend().compile_kernel(reversed_bytes)([big, 5], out, b"\x01\xff", 2) == (big + 255, 9)
    assert list(out) == [big + 255, 6]


def test_a_struct_of_columns_is_passed_field_by_field() -> None:
    backend = CompilingBackend()
    sums, expected = memoryview(bytearray(24)).cast("q"), [0, 0, 0]
    native, python = (Pairs([1, 2, 3], one, b"\x01\x02\x03", 3) for one in (sums, expected))
    assert backend.compile_kernel(sum_of_pairs)(native, 0) == sum_of_pairs(python, 0) == 5 + 7 + 9
    assert list(sums) == expected == [5, 7, 9]
    assert backend.compile_kernel(sum_of_columns)(*native) == sum_of_columns(*python) == 5 + 7


def test_two_kernels_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take, "__qualname__", add_step.__qualname__)
    monkeypatch.setattr(native_library, "make_kernel_name", lambda function: function.__qualname__)
    unit = CLibrarySource()
    unit.add_kernel(add_step)
    with pytest.raises(KernelError, match="two kernels called add_step"):
        unit.add_kernel(take)


def test_kernels_are_found_by_their_mark_wherever_they_are() -> None:
    found = {one.__module__ for one in manifest.find_marked_kernels() if "kernel_schema" not in one.__dict__}
    assert found == set(manifest.find_kernel_modules())


def test_a_kernel_has_another_name_when_a_number_or_its_file_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def name() -> str:
        native_library.make_kernel_name.cache_clear()
        return native_library.make_kernel_name(sum_all)

    first = name()
    assert name() == first
    monkeypatch.setitem(globals(), "STEP", 4)
    second = name()
    assert second != first
    monkeypatch.setattr(native_library, "_hash_module_source", lambda module: "another text")
    assert name() not in (first, second)
    monkeypatch.undo()
    assert name() == first


def test_checksums_equal_their_definition_at_all_lengths(tmp_path: Path) -> None:
    target = tmp_path / "empty.so"
    compile_library(CLibrarySource().write_text(), target, zig_cache=zig_cache())
    made = ctypes.CDLL(str(target))
    made.crc_of.argtypes, made.crc_of.restype = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64], None
    made.crc_of.restype = ctypes.c_int64
    held, source = NativeLibrary(target), random.Random(1)
    for reflected, definition in ((0xEDB88320, zlib.crc32), (0x82F63B78, crc32c.crc32c)):
        for products in (0, 1):
            table = held._make_crc_constants(reflected, products)
            for size in (*range(600), 1000, 4097):
                data, before = source.randbytes(size), source.choice([0, 0xFFFFFFFF, 0x12345678])
                assert made.crc_of(table, data, size, before) == definition(data, before ^ 0xFFFFFFFF) ^ 0xFFFFFFFF


def test_base64_is_that_of_python_at_all_lengths_and_writes_nothing_behind_it(tmp_path: Path) -> None:
    target = tmp_path / "empty.so"
    compile_library(CLibrarySource().write_text(), target, zig_cache=zig_cache())
    made = ctypes.CDLL(str(target))
    source = random.Random(1)
    samples = [source.randbytes(size) for size in (*range(130), 1000, 4097)]
    samples += [b"".join(n.to_bytes(3, "big") for n in range(first, first + 64)) for first in range(0, 4096, 64)]
    for data in samples:
        expected = base64.b64encode(data)
        for quickly in (0, 1):
            out = ctypes.create_string_buffer(b"#" * (len(expected) + 64))
            assert made.base64_run(data, ctypes.c_int64(len(data)), out, ctypes.c_int64(quickly)) == len(expected)
            assert out.raw[:-1] == expected + b"#" * 64


@pytest.mark.parametrize("size", [0, 1, 2, 3, 16, 100])
def test_a_kernel_with_a_native_twin_gives_what_the_twin_gives(size: int) -> None:
    data = random.Random(size).randbytes(size)
    for run in (write_base64_line, CompilingBackend().compile_kernel(write_base64_line)):
        out = bytearray(200)
        assert out[5 : run(data, 0, size, out, 5)] == base64.b64encode(data) + b"\n"


def test_the_look_at_a_text_gives_natively_what_its_kernel_gives() -> None:
    source, native, seen = random.Random(1), CompilingBackend().compile_kernel(classify_plain_text), set[int]()
    for number in range(4000):
        signs = source.choices(
            (
                b"'it\\'s'",
                b"'",
                b'"',
                b"`",
                b"\\",
                b"/",
                b"*",
                b"#",
                b"-",
                b"$",
                b";",
                b"\n",
                b"D",
                b"x",
                b"plain text, " * 2,
            ),
            k=number % 9,
        )
        text = b"".join((*signs, b"'" * source.randrange(2), b"x" * source.randrange(40)))
        start = source.randrange(len(text) + 1)
        for escapes in (0, 1):
            expected = classify_plain_text(text, start, len(text), escapes)
            assert native(text, start, len(text), escapes) == expected, (text, start)
            seen.add(expected)
    assert seen == {0, 1, 2}


def test_what_the_library_does_not_hold_runs_as_python() -> None:
    backend = NativeBackend(CompilingBackend().library)
    layout, _ = next(manifest.iter_compiled_layouts())
    assert type(backend.make_scanner(layout.frame.schema, layout.frame.columns)).__name__ == "PythonScanner"
    assert backend.compile_kernel(sum_all) is sum_all
    assert len(backend.missing) == 2


def test_a_file_that_is_no_library_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.so").write_bytes(b"no library")
    monkeypatch.setenv("BINLOGTOOL_LIBRARY", str(tmp_path / "text.so"))
    monkeypatch.delenv("BINLOGTOOL_BACKEND", raising=False)
    forget()
    with pytest.raises(InputOutputError, match="no native code for this machine"):
        backends.choose_backend("native")
    forget()


def test_a_package_in_a_zip_brings_its_library(tmp_path: Path) -> None:
    beside = Path(native_library.__file__).with_name(native_library.LIBRARY_FILE_NAME)
    if not beside.is_file():
        pytest.skip("this installation has no native code")
    archive = write_package_zip(tmp_path / "package.zip")
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "import binlogtool; from binlogtool.schema.backends import choose_backend\n"
        "print(binlogtool.__file__, choose_backend('native').missing, os.listdir(os.environ['TMPDIR']))\n"
        "with binlogtool.open(sys.argv[2], backend='native') as log: print(sum(1 for _ in log.records()))"
    )
    log = SAMPLES / "readme" / "intact" / "00000000000000001188.xlog"
    (tmp_path / "written").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "written")}
    words = [sys.executable, "-c", program, archive, log]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    nothing = f"{archive}/binlogtool/__init__.py {{}} []"  # all is in the library, and no file of it is left
    assert done.stdout.split("\n")[:2] == [nothing, "565"], done.stderr


# -- every format ------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NativeBackend]:
    """The backend with everything that the formats can ask for: as it was installed, or compiled anew."""
    path = Path(native_library.__file__).with_name(native_library.LIBRARY_FILE_NAME)
    if not path.is_file():
        path = tmp_path / "whole.so"
        compile_library(manifest.collect_library_source().write_text(), path, zig_cache=zig_cache())
    monkeypatch.setenv("BINLOGTOOL_LIBRARY", str(path))
    monkeypatch.delenv("BINLOGTOOL_BACKEND", raising=False)
    forget()
    made = backends.get_native_backend()
    assert made is not None
    yield made
    forget()


def forget() -> None:
    """The library is looked for anew."""
    native_library.load_library.cache_clear()
    backends.get_native_backend.cache_clear()


def records(path: Path, backend: str) -> Any:
    """All that reading gives, or why it could not."""
    try:
        with binlogtool.open(path, backend=backend) as log:
            return [(one.offset, one.size, one.type, one.seq, one.txn, repr(one.body)) for one in log.records()]
    except BinlogtoolError as error:
        return type(error).__name__


@pytest.mark.full
def test_every_sample_is_read_alike_and_nothing_is_missing(whole: NativeBackend) -> None:
    found = [path for path in SAMPLES.rglob("*") if path.is_file() and path.stat().st_size < 60_000]
    assert len(found) > 200
    for path in found:
        assert records(path, "native") == records(path, "python"), path
    assert not whole.missing
