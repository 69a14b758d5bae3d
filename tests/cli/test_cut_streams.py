"""Compressed logs whose data is cut or damaged: what can be unpacked is read, and a finding says where it ends."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path

import pytest
import zstandard

from binlogtool.core.decompress_forward_only import ZstdFrameTracker
from tests.cli.invoke import invoke
from tests.cli.samples import damaged_log, plain_log

MANY = plain_log(4_000)
"""More than a bzip2 block of the smallest size and than a zstd block, so that a part of it can be unpacked."""


def pack_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


METHODS = {
    "gzip": (".gz", gzip.compress),
    "xz": (".xz", lzma.compress),
    "bzip2": (".bz2", lambda data: bz2.compress(data, 1)),
    "zstd": (".zst", pack_zstd),
}
COMMANDS = (
    "verify", "dump", "dump -O jsonl", "stats", "hexdump-annotate --damage-only", "diagnose", "replay-dry-run",
    "convert --to jsonl -o OUT", "convert --to jsonl --on-damage skip -o OUT",
)  # fmt: skip


def write_cut(folder: Path, method: str, data: bytes) -> tuple[Path, int]:
    """A log whose packed data is cut at half, and the byte of the cut."""
    end, pack = METHODS[method]
    packed = pack(data)
    cut = len(packed) // 2
    path = folder / f"transaction.log{end}"
    path.write_bytes(packed[:cut])
    return path, cut


@pytest.mark.parametrize("method", METHODS)
def test_the_records_before_the_cut_are_verified_and_the_cut_is_a_finding(tmp_path: Path, method: str) -> None:
    path, cut = write_cut(tmp_path, method, MANY)
    done = invoke("verify", "-O", "json", str(path))
    (file,) = json.loads(done.out)["files"]
    (found,) = (one for one in file["findings"] if one["id"] == "compression-error")
    assert done.code == 1
    assert file["records"] > 100
    assert found["severity"] == "error" and found["offset"] == file["size"]
    assert found["facts"]["packed_size"] == cut
    assert f"the {method} data is cut at byte {cut:,} of the file" in found["message"]
    assert "copy the file again" in found["message"]


@pytest.mark.parametrize("garbage", [b"x", b"garbage" * 30, b"\0\1" * 900])
@pytest.mark.parametrize("method", [*METHODS, "lz4"])
def test_bytes_after_the_end_are_a_finding(tmp_path: Path, method: str, garbage: bytes) -> None:
    if method == "lz4":
        suffix, pack = ".lz4", pytest.importorskip("lz4.frame").compress
    else:
        suffix, pack = METHODS[method]
    path = tmp_path / f"transaction.log{suffix}"
    path.write_bytes(pack(plain_log()[:50]) + pack(plain_log()[50:]))
    assert invoke("verify", str(path)).code == 0
    path.write_bytes(pack(plain_log()) + garbage)
    done = invoke("verify", str(path))
    assert done.code == 1 and "compression-error" in done.text


def test_padding_after_an_xz_stream_is_none(tmp_path: Path) -> None:
    path = tmp_path / "transaction.log.xz"
    path.write_bytes(lzma.compress(plain_log()[:50]) + bytes(8) + lzma.compress(plain_log()[50:]) + bytes(4))
    assert invoke("verify", str(path)).code == 0


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("method", METHODS)
def test_no_command_stops_before_the_cut(tmp_path: Path, method: str, command: str) -> None:
    path, cut = write_cut(tmp_path, method, MANY)
    words = command.replace("OUT", str(tmp_path / "out")).split()
    done = invoke(*words, str(path))
    told = done.text + done.err
    assert done.code == {"diagnose": 6, "replay-dry-run": 4}.get(command, 1), told[-500:]
    assert "in order" not in told
    assert ("copy the file again" if command == "diagnose" else f"cut at byte {cut:,}") in told


@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_can_be_unpacked_the_message_says_so(tmp_path: Path, method: str) -> None:
    end, pack = METHODS[method]
    path = tmp_path / f"transaction.log{end}"
    path.write_bytes(pack(plain_log())[:20])
    for command in ("verify", "dump", "diagnose", "convert --to jsonl -o OUT"):
        done = invoke(*command.replace("OUT", str(tmp_path / "out")).split(), str(path))
        assert done.code == 4 and "cut at byte 20 of the file" in done.text + done.err, (command, done.err)


@pytest.mark.parametrize("method", METHODS)
def test_damaged_packed_data_is_no_cut(tmp_path: Path, method: str) -> None:
    end, pack = METHODS[method]
    packed = bytearray(pack(MANY))
    at = len(packed) * 3 // 4
    packed[at : at + 40] = bytes(40)
    path = tmp_path / f"transaction.log{end}"
    path.write_bytes(packed)
    done = invoke("verify", str(path))
    assert done.code == 1 and "compression-error" in done.text and f"the {method} data is damaged before" in done.text


def test_a_cut_log_says_what_to_do_next(tmp_path: Path) -> None:
    path, _ = write_cut(tmp_path, "gzip", MANY)
    done = invoke("diagnose", str(path))
    assert "do 1      copy the file again from where it was compressed" in done.text
    whole = tmp_path / "damaged log.gz"
    whole.write_bytes(gzip.compress(damaged_log()))
    assert f"gunzip -k -- '{whole}'" in invoke("diagnose", str(whole)).text


def test_every_cut_of_a_zstd_stream_is_seen() -> None:
    rng = random.Random(5)
    noise = rng.randbytes(300_000)  # raw blocks
    frames = (
        zstandard.ZstdCompressor(write_checksum=True).compress(b"a" * 5000),
        zstandard.ZstdCompressor(write_content_size=False).compress(noise),
        b"\x5a\x2a\x4d\x18\x07\x00\x00\x00skipped",
        zstandard.ZstdCompressor(write_checksum=False).compress(bytes(400_000)),
    )
    stream = b"".join(frames)
    ends = {sum(map(len, frames[:count])) for count in range(5)}
    for cut in (*ends, *(end + step for end in ends for step in (-1, 1)), *rng.sample(range(len(stream)), 300)):
        if 0 <= cut <= len(stream):
            tracker, at = ZstdFrameTracker(), 0
            while at < cut:
                step = min(rng.randint(1, 70_000), cut - at)
                tracker.track_frame_boundaries(stream[at : at + step])
                at += step
            assert tracker.is_between_frames == (cut in ends), cut


def test_convert_says_how_many_bytes_it_leaves_out_and_where(tmp_path: Path) -> None:
    path, out = tmp_path / "transaction.log", str(tmp_path / "out")
    path.write_bytes(damaged_log())  # its second record of 95 bytes is damaged
    done = invoke("convert", "--to", "jsonl", "--on-damage", "skip", "-o", out, str(path))
    lost = [line for line in done.text.splitlines() if line.startswith("lost ")]
    assert done.code == 0
    assert lost == [
        "lost   95 bytes of the input in 1 damaged range, which --on-damage skip leaves out:",
        f"lost     {path} 0x0000005f  damaged-range: 95 bytes, transaction 2",
    ]
    path.write_bytes(plain_log())
    assert (
        "lost"
        not in invoke("convert", "--to", "jsonl", "--on-damage", "skip", "--overwrite", "-o", out, str(path)).text
    )
