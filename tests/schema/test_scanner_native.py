"""The compiled side: its checksums, its memory accesses, its cache; and the choice of the backend."""

from __future__ import annotations

import ctypes
import mmap
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from construct import Bytes, Int8ub, Int32ul, Struct, Tell, this

from binlogtool.errors import InputOutputError, UsageError
from binlogtool.format_api.layout import CRC32, CRC32C, CRC32C_RAW, Checksum
from binlogtool.format_api.schema_fields import CrcCheck, Int64s, MutableInt64s, UInt8s, kernel
from binlogtool.schema import backends, native_library
from binlogtool.schema.backends import NativeBackend, PythonBackend, get_native_backend
from binlogtool.schema.c_codegen import KernelError
from binlogtool.schema.frame_scan_loop import StopReason
from binlogtool.schema.native_library import NativeLibrary
from tests.compiling import CompilingBackend

# The usual polynomial with another end: no xor at the last step.
JAMCRC = Checksum("jamcrc", 0x104C11DB7, 0xFFFFFFFF, 0, 0x340BC6D9)
FRAME = {
    checksum: Struct(
        "crc" / Int32ul, "n" / Int32ul, "a" / Tell, "data" / Bytes(this.n), "z" / Tell,
        "v" / CrcCheck(checksum, this.crc, this.a, this.z),
    )
    for checksum in (CRC32, CRC32C, CRC32C_RAW, JAMCRC)
}  # fmt: skip


def frame(checksum: Checksum, data: bytes) -> bytes:
    return checksum.reference(data).to_bytes(4, "little") + len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize("by_table", [False, True], ids=["as the machine can", "by table"])
@pytest.mark.parametrize("checksum", FRAME, ids=lambda checksum: f"{checksum.name} {checksum.init:x}")
def test_compiled_checksums_equal_their_definition_at_all_lengths(
    checksum: Checksum, by_table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_table:
        tables = NativeLibrary._make_crc_constants
        monkeypatch.setattr(NativeLibrary, "_make_crc_constants", lambda self, word, _: tables(self, word, 0))
    source = random.Random(1)
    scanner = CompilingBackend().make_scanner(FRAME[checksum], ())
    data = b"".join(frame(checksum, source.randbytes(n)) for n in [*range(600), 1000, 4097])
    table, stop = scanner.scan(data, 0, len(data))
    assert (stop.reason, table.count, scanner.interpreted_frames) == (StopReason.END, 602, 0)
    wrong = bytearray(frame(checksum, source.randbytes(50)))
    wrong[20] ^= 4
    assert scanner.scan(wrong, 0, len(wrong))[1].reason is StopReason.CHECKSUM


def test_no_byte_in_front_of_a_buffer_is_touched_by_a_checksum() -> None:
    """The first steps of short pieces are loaded from their end."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0):
        pytest.skip("this system has no mprotect")
    schema = Struct(
        "a" / Tell, "n" / Int8ub, "data" / Bytes(this.n), "z" / Tell,
        "crc" / Int32ul, "v" / CrcCheck(CRC32, this.crc, this.a, this.z),
    )  # fmt: skip
    scanner = CompilingBackend().make_scanner(schema, ())
    for size in range(200):
        covered = bytes([size]) + bytes(range(size))
        data = covered + CRC32.reference(covered).to_bytes(4, "little")
        view = memoryview(memory)[mmap.PAGESIZE : mmap.PAGESIZE + len(data)]
        view[:] = data
        assert scanner.scan(view, 0, len(data))[1].reason is StopReason.END
    assert scanner.interpreted_frames == 0


@pytest.mark.parametrize("backend", [PythonBackend(), CompilingBackend()], ids=lambda backend: backend.name)
def test_where_more_follows_the_last_frame_is_left_to_the_next_call(backend: Any) -> None:
    whole = frame(CRC32, b"x" * 30)
    scanner = backend.make_scanner(FRAME[CRC32], ())
    for size in range(len(whole) + 1, 2 * len(whole)):
        data = (whole + whole)[:size]
        assert scanner.scan(data, 0, size, True)[1] == (StopReason.CUT, len(whole), None, -1, -1)
        assert scanner.scan(data, 0, size)[1].reason is StopReason.SHORT
        assert scanner.scan(data, len(whole), size, True)[1].reason is StopReason.SHORT


@kernel()
def read_pair(buf: UInt8s, p: int, n: int) -> tuple[int, int]:
    """Two bytes."""
    if n - p < 2:
        return 0, -1
    return buf[p] * 256 + buf[p + 1], p + 2


def test_lengths_that_no_buffer_has_stop_the_walk() -> None:
    scanner = CompilingBackend().make_scanner(FRAME[CRC32], ("n",))
    data = frame(CRC32, b"first") + frame(CRC32, bytes(range(100)))
    for length in (101, 2**31 - 1, 2**31, 2**32 - 1):
        hostile = data[:17] + length.to_bytes(4, "little") + data[21:]
        _, stop = scanner.scan(hostile, 0, len(hostile))
        assert (stop.reason, stop.at, stop.need) == (StopReason.SHORT, 13, 21 + length)


def test_what_lies_behind_the_end_changes_nothing() -> None:
    data = frame(CRC32, b"first") + frame(CRC32, b"second one")
    tails = (b"", bytes(64), b"\xff" * 64, data[5:] * 2)
    for backend in (backends.PythonBackend(), CompilingBackend()):
        scanner = backend.make_scanner(FRAME[CRC32], ("n", "crc"))
        for end in range(len(data) + 1):
            results = []
            for tail in tails:
                table, stop = scanner.scan(data[:end] + tail, 0, end)
                results.append((stop, [list(table[c])[: table.count] for c in ("end", "n", "crc")]))
            assert all(result == results[0] for result in results)


def test_every_kind_of_buffer_is_taken_as_it_is() -> None:
    scanner = CompilingBackend().make_scanner(FRAME[CRC32], ("n",))
    data = frame(CRC32, b"abc")
    for buf in (data, bytearray(data), memoryview(data), memoryview(bytearray(data)), np.frombuffer(data, np.uint8)):
        table, stop = scanner.scan(buf, 0, len(data))
        assert (table.count, stop.reason) == (1, StopReason.END)


@pytest.mark.parametrize("backend", [backends.PythonBackend(), CompilingBackend()], ids=["python", "native"])
def test_a_mapped_file_can_be_closed_after_a_scan(backend: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(frame(CRC32, b"abc") + b"torn")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        scanner = backend.make_scanner(FRAME[CRC32], ("n",))
        scanner.scan(mapped, 0, len(mapped))
        scanner.scan_spans(mapped, [0], [11], 0, 1)


# -- compiled kernels --------------------------------------------------------------------------------------------------

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
def uses_a_list(values: Int64s) -> Any:
    return sorted(values)


def not_a_kernel(value: int) -> int:
    return value


@kernel()
def calls_no_kernel(value: int) -> int:
    return not_a_kernel(value)


def test_a_kernel_can_be_compiled() -> None:
    out = np.zeros(4, np.int64)
    assert CompilingBackend().compile_kernel(sum_all)(np.arange(4), out, 4) == 18
    assert list(out) == [3, 4, 5, 6]
    assert backends.PythonBackend().compile_kernel(sum_all) is sum_all


@pytest.mark.parametrize("function", [uses_a_list, calls_no_kernel])
def test_what_is_no_kernel_is_refused(function: Any) -> None:
    with pytest.raises(KernelError):
        CompilingBackend().compile_kernel(function)


# -- names: stale code is not found ------------------------------------------------------------------------------------


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


def test_what_the_library_does_not_hold_runs_as_python() -> None:
    backend = NativeBackend(CompilingBackend().library)
    data = frame(CRC32, b"abc")
    scanner = backend.make_scanner(FRAME[CRC32], ("n",))
    table, stop = scanner.scan(data, 0, len(data))
    assert (list(table["n"])[:1], stop.reason) == ([3], StopReason.END)
    assert backend.compile_kernel(sum_all) is sum_all
    assert len(backend.missing) == 2


def test_a_file_that_is_no_library_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.so").write_bytes(b"no library")
    monkeypatch.setenv("BINLOGTOOL_LIBRARY", str(tmp_path / "text.so"))
    native_library.load_library.cache_clear()
    get_native_backend.cache_clear()
    assert backends.choose_backend("auto").name == "python"
    with pytest.raises(InputOutputError, match="no native code for this machine"):
        backends.choose_backend("native")
    native_library.load_library.cache_clear()
    get_native_backend.cache_clear()


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BINLOGTOOL_BACKEND", raising=False)


def test_native_code_is_used_where_there_is_some() -> None:
    assert backends.choose_backend("auto").name == backends.choose_backend("native").name == "native"
    assert backends.choose_backend("python").name == "python"


def test_the_environment_goes_before_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINLOGTOOL_BACKEND", "python")
    assert backends.choose_backend("native").name == "python"


def test_an_unknown_backend_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'cython'"):
        backends.choose_backend("cython")


def test_a_backend_imports_nothing_heavy() -> None:
    script = (
        "import sys; from binlogtool.schema import backends; backends.choose_backend('auto');"
        "print([m for m in ('numpy',) if m in sys.modules])"
    )
    root = Path(backends.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"


def test_kernels_with_small_unsigned_bytes_are_exact() -> None:
    from construct import Construct

    from binlogtool.format_api.schema_fields import ScalarKernel

    class Pair(Construct):
        scan = ScalarKernel(read_pair)

    table, _ = (
        CompilingBackend().make_scanner(Struct("pair" / Pair(), "n" / Int8ub), ("pair",)).scan(b"\xff\xfe\x00", 0, 3)
    )
    assert table["pair"][0] == 65534
