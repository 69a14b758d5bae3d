"""Lets old clients in: speaks the handshake of MySQL 5.7 to a client, and today's to a server behind a socket.

Maxwell and Canal know neither caching_sha2_password (the only way in that MySQL 9 has) nor SHOW BINARY LOG STATUS. All
else passes as it is, above all the events of the log.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from pathlib import Path

_OLD = b"mysql_native_password"
_SSL, _COMPRESS, _PLUGIN_AUTH, _ATTRIBUTES = 1 << 11, 1 << 5, 1 << 19, 1 << 20
_WITH_DATABASE, _QUERY = 1 << 3, 3
_STATUS = re.compile(rb"^\s*SHOW\s+MASTER\s+STATUS\s*$", re.IGNORECASE)


class Doorman:
    """`with Doorman(socket_of_server) as door: ... door.port ...`. Every client is root."""

    def __init__(self, path: Path, *, new_words: bool) -> None:
        self._path, self._new_words = path, new_words
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []

    def __enter__(self) -> Doorman:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._path))
                self._open += [client, server]
                threading.Thread(target=self._guide, args=(client, server), daemon=True).start()

    def _guide(self, client: socket.socket, server: socket.socket) -> None:
        try:
            self._let_in(client, server)
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            while packet := _packet(client):
                server.sendall(self._reworded(packet))
        except OSError:
            pass
        finally:
            client.close()
            server.close()

    def _let_in(self, client: socket.socket, server: socket.socket) -> None:
        greeting = _packet(server)
        client.sendall(_framed(_old_greeting(greeting[4:]), greeting[3]))
        answer, way = _packet(client), greeting[4:].rstrip(b"\0").rpartition(b"\0")[2]
        server.sendall(_framed(_new_answer(answer[4:], way), answer[3]))

    def _reworded(self, packet: bytes) -> bytes:
        if self._new_words and packet[4] == _QUERY and _STATUS.match(packet[5:]):
            return _framed(bytes([_QUERY]) + b"SHOW BINARY LOG STATUS", packet[3])
        return packet


def _old_greeting(data: bytes) -> bytes:
    """Protocol 10, without TLS and compression, and with another way to show a password."""
    at = data.index(b"\0", 1) + 1 + 4 + 8 + 1
    low, charset, status, high = struct.unpack_from("<HBHH", data, at)
    flags = (low | high << 16) & ~(_SSL | _COMPRESS) | _PLUGIN_AUTH
    if charset == 255:  # utf8mb4_0900_ai_ci: the drivers are older than that
        charset = 45
    middle = struct.pack("<HBHH", flags & 0xFFFF, charset, status, flags >> 16)
    rest = data[at + 7 : data.rindex(b"\0", 0, len(data) - 1) + 1]
    return data[:at] + middle + rest + _OLD + b"\0"


def _new_answer(data: bytes, way: bytes) -> bytes:
    """Root, who has no password. way: that the server knows to show one."""
    (flags,) = struct.unpack_from("<I", data)
    flags = flags & ~(_SSL | _COMPRESS | _ATTRIBUTES) | _PLUGIN_AUTH
    database = b""
    if flags & _WITH_DATABASE:
        at = data.index(b"\0", 32) + 1
        at += 1 + data[at]
        database = data[at : data.index(b"\0", at) + 1]
    return struct.pack("<I", flags) + data[4:32] + b"root\0" + b"\0" + database + way + b"\0"


def _packet(source: socket.socket) -> bytes:
    """With its head; b"" = the other side has gone."""
    head = _exactly(source, 4)
    return head + _exactly(source, int.from_bytes(head[:3], "little")) if head else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            return b""
        data += more
    return bytes(data)


def _framed(data: bytes, number: int) -> bytes:
    return len(data).to_bytes(3, "little") + bytes([number]) + data


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
