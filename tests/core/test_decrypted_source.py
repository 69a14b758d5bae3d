"""The source that shows an encrypted file as plain bytes: small reads, streams, memory."""

from __future__ import annotations

import io
import struct
import tracemalloc
from pathlib import Path

import pytest

from binlogtool.core.open_file import BytesSource, DecryptedSource, FileSource, StreamSource, read_range
from binlogtool.errors import InputOutputError
from binlogtool.format_api.layout import BufferDecryptor, RangeReader
from tests.formats.mysql_binlog import crypt_samples as samples_of
from tests.formats.mysql_binlog import crypt_writer as writer


def _swapped(read: RangeReader) -> BufferDecryptor:
    def unveil(offset: int, view: memoryview) -> None:
        view[:] = bytes(byte ^ (offset + i) & 0xFF for i, byte in enumerate(view))

    return unveil


def test_only_what_was_read_is_unveiled() -> None:
    data = bytes((i * 7) % 251 ^ i & 0xFF for i in range(1000))
    source = DecryptedSource(BytesSource("log", data), _swapped)
    buffer = bytearray(b"?" * 300)
    assert source.read_at(900, memoryview(buffer)) == 100
    assert buffer == bytes((i * 7) % 251 for i in range(900, 1000)) + b"?" * 200
    assert source.read_at(2000, memoryview(buffer)) == 0


def test_it_passes_on_what_the_source_below_knows(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))
    source = DecryptedSource(FileSource(str(path)), _swapped)
    assert (source.name, source.size, source.find_change_or_cut()) == (str(path), 100, None)
    path.write_bytes(bytes(101))
    found = source.find_change_or_cut()
    assert found is not None
    assert found.id == "changed-while-read"
    source.close()
    with pytest.raises(OSError, match="descriptor"):
        source.find_change_or_cut()


def test_a_hole_of_the_file_is_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(1 << 20)
    raw = FileSource(str(path))
    assert raw.find_hole_end(100) == 1 << 20
    assert DecryptedSource(raw, _swapped).find_hole_end(100) == 100
    raw.close()


def test_a_stream_of_mysql_is_read_forward_and_one_of_mariadb_is_refused_in_one_line(corpus: Path) -> None:
    data, unveil = samples_of.corpus_log(corpus, samples_of.MYSQL)
    whole = samples_of.plain(data, unveil)
    source = DecryptedSource(StreamSource("-", io.BytesIO(data)), unveil)
    got = b"".join(read_range(source, at, 1000) for at in range(0, len(data), 1000))
    assert got == whole
    data, unveil = samples_of.corpus_log(corpus, samples_of.MARIA[0])
    with pytest.raises(InputOutputError, match="cannot be read from a stream; name the file"):
        read_range(DecryptedSource(StreamSource("-", io.BytesIO(data)), unveil), 0, 4096)


class Repeated:
    """A file of 200 MB: encrypted events of one size, made when they are read."""

    name = "repeated"

    def __init__(self, head: bytes, key: bytes, nonce: bytes, body: int, size: int) -> None:
        self._head, self._key, self._nonce = head, key, nonce
        self._event = writer.event(0, 2, bytes(body))
        self.size: int | None = len(head) + (size - len(head)) // len(self._event) * len(self._event)
        self._last = (-1, b"")

    def sealed(self, number: int) -> bytes:
        if number != self._last[0]:
            at = len(self._head) + number * len(self._event)
            event = self._event[:13] + struct.pack("<I", at + len(self._event)) + self._event[17:]
            self._last = number, writer.seal(event, at, self._key, self._nonce)
        return self._last[1]

    def read_at(self, offset: int, view: memoryview) -> int:
        assert self.size is not None
        end = min(self.size, offset + len(view))
        at = offset
        while at < end:
            if at < len(self._head):
                piece = self._head[at : min(end, len(self._head))]
            else:
                number, skip = divmod(at - len(self._head), len(self._event))
                piece = self.sealed(number)[skip : skip + end - at]
            view[at - offset : at - offset + len(piece)] = piece
            at += len(piece)
        return max(0, end - offset)

    def find_hole_end(self, offset: int) -> int:
        return offset

    def find_change_or_cut(self) -> None:
        return None

    def close(self) -> None:
        return None


@pytest.mark.full
@pytest.mark.parametrize("body", [30_000, 900_000])
def test_memory_stays_bounded_for_a_file_of_200_megabytes(corpus: Path, body: int) -> None:
    data, unveil = samples_of.corpus_log(corpus, samples_of.MARIA[0])
    head = samples_of.plain(data, unveil)[:296]
    key, nonce = bytes(range(32)), data[280:292]
    raw = Repeated(head, key, nonce, body, 200_000_000)
    start = head + raw.sealed(0)[:2000]
    source = DecryptedSource(raw, samples_of.maria(start, b"1;" + key.hex().encode()))
    view = memoryview(bytearray(1 << 20))
    assert raw.size is not None
    tracemalloc.start()
    try:
        at, before = 0, tracemalloc.get_traced_memory()[0]
        while done := source.read_at(at, view):
            at += done
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert at == raw.size
    assert peak < 8 << 20
    size = body + 23
    for number in (0, (raw.size - 296) // size // 2, (raw.size - 296) // size - 1):  # going back is cheap
        got = read_range(source, 296 + number * size, size)
        assert got[:17] == writer.event(296 + number * size, 2, bytes(body))[:17]
        assert got[19:-4] == bytes(body)
