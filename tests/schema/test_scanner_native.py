"""The compiled side: its checksums, its memory accesses, its cache; and the choice of the backend."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from construct import Bytes, Int8ub, Int32ul, Struct, Tell, this

from binlogtool.errors import MissingExtraError, UsageError
from binlogtool.formats.checksums import CRC32, CRC32C, CRC32C_RAW, Checksum
from binlogtool.formats.fields import CrcCheck, kernel
from binlogtool.limits import MIB
from binlogtool.schema import backends, generate
from binlogtool.schema.scanner import StopReason

pytest.importorskip("numba")

import numpy as np

from binlogtool.schema import crc_kernels
from binlogtool.schema.kernel_source import KernelError
from binlogtool.schema.numba_backend import NumbaBackend
from binlogtool.schema.python_backend import PythonBackend

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


@pytest.mark.parametrize("by_table", [False, True], ids=["as installed", "by table"])
@pytest.mark.parametrize("checksum", FRAME, ids=lambda checksum: f"{checksum.name} {checksum.init:x}")
def test_compiled_checksums_equal_their_definition_at_all_lengths(
    checksum: Checksum, by_table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_table:
        monkeypatch.setattr(crc_kernels, "address_of", lambda poly: 0)
    source = random.Random(1)
    scanner = NumbaBackend().scanner(FRAME[checksum], ())
    data = b"".join(frame(checksum, source.randbytes(n)) for n in [*range(600), 1000, 4097])
    table, stop = scanner.scan(data, 0, len(data))
    assert (stop.reason, table.count, scanner.by_hand) == (StopReason.END, 602, 0)
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
    scanner = NumbaBackend().scanner(schema, ())
    for size in range(200):
        covered = bytes([size]) + bytes(range(size))
        data = covered + CRC32.reference(covered).to_bytes(4, "little")
        view = memoryview(memory)[mmap.PAGESIZE : mmap.PAGESIZE + len(data)]
        view[:] = data
        assert scanner.scan(view, 0, len(data))[1].reason is StopReason.END
    assert scanner.by_hand == 0


@pytest.mark.parametrize("backend", [PythonBackend(), NumbaBackend()], ids=lambda backend: backend.name)
def test_where_more_follows_the_last_frame_is_left_to_the_next_call(backend: Any) -> None:
    whole = frame(CRC32, b"x" * 30)
    scanner = backend.scanner(FRAME[CRC32], ())
    for size in range(len(whole) + 1, 2 * len(whole)):
        data = (whole + whole)[:size]
        assert scanner.scan(data, 0, size, True)[1] == (StopReason.CUT, len(whole), None, -1, -1)
        assert scanner.scan(data, 0, size)[1].reason is StopReason.SHORT
        assert scanner.scan(data, len(whole), size, True)[1].reason is StopReason.SHORT


def test_a_function_that_disagrees_with_the_definition_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    liar = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64)(lambda *_: 1)
    monkeypatch.setattr(crc_kernels, "_isal_function", lambda symbol: liar)
    crc_kernels.address_of.cache_clear()
    assert crc_kernels.address_of(CRC32.poly) == 0
    crc_kernels.address_of.cache_clear()


def test_without_isal_the_address_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc_kernels, "_isal_function", lambda symbol: None)
    crc_kernels.address_of.cache_clear()
    assert crc_kernels.address_of(CRC32.poly) == crc_kernels.address_of(CRC32C.poly) == 0
    crc_kernels.address_of.cache_clear()


@kernel()
def read_pair(buf: Any, p: int, n: int) -> tuple[int, int]:
    """Two bytes."""
    if n - p < 2:
        return 0, -1
    return buf[p] * 256 + buf[p + 1], p + 2


def test_lengths_that_no_buffer_has_stop_the_walk() -> None:
    scanner = NumbaBackend().scanner(FRAME[CRC32], ("n",))
    data = frame(CRC32, b"first") + frame(CRC32, bytes(range(100)))
    for length in (101, 2**31 - 1, 2**31, 2**32 - 1):
        hostile = data[:17] + length.to_bytes(4, "little") + data[21:]
        _, stop = scanner.scan(hostile, 0, len(hostile))
        assert (stop.reason, stop.at, stop.need) == (StopReason.SHORT, 13, 21 + length)


def test_what_lies_behind_the_end_changes_nothing() -> None:
    data = frame(CRC32, b"first") + frame(CRC32, b"second one")
    tails = (b"", bytes(64), b"\xff" * 64, data[5:] * 2)
    for backend in (backends.PythonBackend(), NumbaBackend()):
        scanner = backend.scanner(FRAME[CRC32], ("n", "crc"))
        for end in range(len(data) + 1):
            results = []
            for tail in tails:
                table, stop = scanner.scan(data[:end] + tail, 0, end)
                results.append((stop, [list(table[c])[: table.count] for c in ("end", "n", "crc")]))
            assert all(result == results[0] for result in results)


def test_every_kind_of_buffer_is_taken_as_it_is_by_one_compiled_form() -> None:
    scanner = NumbaBackend().scanner(FRAME[CRC32], ("n",))
    data = frame(CRC32, b"abc")
    for buf in (data, bytearray(data), memoryview(data), memoryview(bytearray(data)), np.frombuffer(data, np.uint8)):
        table, stop = scanner.scan(buf, 0, len(data))
        assert (table.count, stop.reason) == (1, StopReason.END)
    assert len(scanner._function.signatures) == 1


@pytest.mark.parametrize("backend", [backends.PythonBackend(), NumbaBackend()], ids=["python", "numba"])
def test_a_mapped_file_can_be_closed_after_a_scan(backend: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(frame(CRC32, b"abc") + b"torn")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        scanner = backend.scanner(FRAME[CRC32], ("n",))
        scanner.scan(mapped, 0, len(mapped))
        scanner.scan_spans(mapped, [0], [11], 0, 1)


# -- compiled kernels --------------------------------------------------------------------------------------------------

STEP = 3


@kernel()
def add_step(value: int) -> int:
    """One constant more."""
    return value + STEP


@kernel(add_step)
def sum_all(values: Any, out: Any, count: int) -> int:
    """The sum of all values, each with a step."""
    total: int = 0
    for i in range(count):
        out[i] = add_step(values[i])
        total += out[i]
    return total


@kernel()
def uses_a_list(values: Any) -> Any:
    return sorted(values)


def not_a_kernel(value: int) -> int:
    return value


@kernel()
def calls_no_kernel(value: int) -> int:
    return not_a_kernel(value)


def test_a_kernel_can_be_compiled() -> None:
    out = np.zeros(4, np.int64)
    assert NumbaBackend().compile(sum_all)(np.arange(4), out, 4) == 18
    assert list(out) == [3, 4, 5, 6]
    assert backends.PythonBackend().compile(sum_all) is sum_all


@pytest.mark.parametrize("function", [uses_a_list, calls_no_kernel])
def test_what_is_no_kernel_is_refused(function: Any) -> None:
    with pytest.raises(KernelError):
        NumbaBackend().compile(function)


# -- the cache of generated modules ------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    generate.cache_directory.cache_clear()
    yield tmp_path / "cache" / "binlogtool"
    generate.cache_directory.cache_clear()


def test_the_cache_directory_is_private(cache: Path) -> None:
    assert generate.cache_directory() == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_directory_that_others_can_write_to_is_not_used(cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert generate.cache_directory() == tmp_path / f"binlogtool-{os.geteuid()}"


def test_a_directory_of_someone_else_is_not_used(cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(generate, "is_private", lambda directory: False)
    chosen = generate.cache_directory()
    assert chosen.parent == tmp_path
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert not list(cache.iterdir())


def test_a_link_in_place_of_the_directory_is_not_followed(cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    assert generate.cache_directory() == tmp_path / f"binlogtool-{os.geteuid()}"


def test_a_changed_file_in_the_cache_is_written_anew(cache: Path) -> None:
    module = generate.load("ANSWER = 42\n", "test")
    path = Path(module.__file__ or "")
    path.write_text("ANSWER = 7\n")
    sys.modules.pop(module.__name__)
    assert generate.load("ANSWER = 42\n", "test").ANSWER == 42
    sys.modules.pop(module.__name__)


SCRIPT = """
import sys
from construct import Int8ub, Struct
from binlogtool.schema.numba_backend import NumbaBackend
from binlogtool.schema.python_backend import PythonBackend
scanner = NumbaBackend().scanner(Struct("n" / Int8ub), ("n",))
table, stop = scanner.scan(b"abc", 0, 3)
stats = scanner._function.stats
print(table.count, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_damaged_cache_files_are_replaced(cache: Path) -> None:
    def run() -> str:
        root = Path(backends.__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=root, check=True)
        return done.stdout.strip()

    assert run() == "3 0 1"
    assert run() == "3 1 0"
    for suffix in ("nbc", "nbi"):
        for kept in (cache / "__pycache__").glob(f"*.{suffix}"):
            kept.write_bytes(b"damaged")
        assert run() == "3 0 1"


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BINLOGTOOL_BACKEND", raising=False)


@pytest.mark.parametrize(("size", "work", "name"), [
    (None, "rows", "python"),
    (8 * MIB - 1, "rows", "python"),
    (8 * MIB, "rows", "numba"),
    (127 * MIB, "checksum", "python"),
    (128 * MIB, "checksum", "numba"),
])  # fmt: skip
def test_numba_is_chosen_when_it_is_worth_its_start(size: int | None, work: str, name: str) -> None:
    assert backends.choose("auto", size, work).name == name


def test_without_numba_auto_means_python_and_asking_for_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    assert backends.choose("auto", 2**40, "rows").name == "python"
    with pytest.raises(MissingExtraError, match=r"pip install 'binlogtool\[fast\]'"):
        backends.choose("numba", 1, "rows")


def test_the_environment_goes_before_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINLOGTOOL_BACKEND", "numba")
    assert backends.choose("python", 1, "rows").name == "numba"


def test_an_unknown_backend_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'cython'"):
        backends.choose("cython", 1, "rows")


def test_the_python_backend_imports_nothing_heavy() -> None:
    script = (
        "import sys; from binlogtool.schema import backends; backends.choose('auto', 2**20, 'rows');"
        "print([m for m in ('numba', 'numpy', 'llvmlite') if m in sys.modules])"
    )
    root = Path(backends.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"


def test_kernels_with_small_unsigned_bytes_are_exact() -> None:
    from construct import Construct

    from binlogtool.formats.fields import ScalarKernel

    class Pair(Construct):
        scan = ScalarKernel(read_pair)

    table, _ = NumbaBackend().scanner(Struct("pair" / Pair(), "n" / Int8ub), ("pair",)).scan(b"\xff\xfe\x00", 0, 3)
    assert table["pair"][0] == 65534
