"""A server that speaks just enough of the protocol to record what a command line client sends.

It answers every statement with OK, or with an error where it is asked to refuse it. The status flags of an answer are
those of its sql_mode, which clients go by when they read strings.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

NO_BACKSLASH_STATUS, ANSI_QUOTES_STATUS = 512, 32768
NO_BACKSLASH, ANSI_QUOTES = 1 << 20, 4
_AUTOCOMMIT = 2
_CAPABILITIES = 0x00FFFFFF & ~0x20 & ~0x800 & ~0x100000 & ~0x200000 & ~0x400000 & ~0x800000 & ~0x400
"""No compression, no TLS, no attributes of connections, no session tracking, no older end of results."""
_MODE = re.compile(rb"sql_mode\s*=\s*(\d+|'[^']*'|DEFAULT)", re.IGNORECASE)
_QUIT, _INIT_DB, _QUERY = 1, 2, 3


class RecordingServer:
    """`with RecordingServer(socket, version) as server: ...; server.statements`.

    refuses: is this statement answered with an error? disturb: the status flags after a statement that sets no mode.
    """

    def __init__(
        self,
        path: Path,
        version: str,
        refuses: Callable[[bytes], bool] = lambda _: False,
        disturb: Callable[[int], int] = lambda status: status,
    ) -> None:
        self.path, self.version = path, version
        self.refuses, self.disturb = refuses, disturb
        self.mariadb = "MariaDB" in version
        self.statements: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> RecordingServer:
        self._listener.bind(str(self.path))
        self._listener.listen(4)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    _Session(self, connection).run()
                except (ConnectionError, EOFError):
                    continue


class _Session:
    """One connection."""

    def __init__(self, server: RecordingServer, connection: socket.socket) -> None:
        self._server, self._stream = server, connection.makefile("rwb", buffering=1 << 16)
        self._number, self._status = 0, _AUTOCOMMIT

    def run(self) -> None:
        self._greet()
        self._read()
        self._answer()
        while True:
            self._number = 0
            packet = self._read()
            if not packet or packet[0] == _QUIT:
                return
            if packet[0] == _QUERY:
                self._query(packet[1:])
            elif packet[0] == _INIT_DB:
                self._server.statements.append(b"USE " + packet[1:])
                self._answer()
            else:
                self._answer()

    def _greet(self) -> None:
        plugin = b"mysql_native_password" if self._server.mariadb else b"caching_sha2_password"
        head = b"\x0a" + self._server.version.encode() + b"\0" + struct.pack("<I", 7) + os.urandom(8).hex()[:8].encode()
        low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16 | 0x8
        head += b"\0" + struct.pack("<HBHHB", low, 45, self._status, high, 21) + bytes(10)
        self._write(head + os.urandom(12).hex()[:12].encode() + b"\0" + plugin + b"\0")

    def _query(self, text: bytes) -> None:
        server = self._server
        server.statements.append(text)
        if server.refuses(text):
            self._write(b"\xff" + struct.pack("<H", 1231) + b"#42000refused")
            return
        found = _MODE.search(text) if text.lstrip()[:4].upper() == b"SET " else None
        if found is not None:
            self._set_mode(found[1])
        else:
            self._status = server.disturb(self._status)
        self._answer()

    def _set_mode(self, value: bytes) -> None:
        number = int(value) if value.isdigit() else 0
        self._status &= ~(NO_BACKSLASH_STATUS | ANSI_QUOTES_STATUS)
        if number & NO_BACKSLASH or b"NO_BACKSLASH_ESCAPES" in value:
            self._status |= NO_BACKSLASH_STATUS
        if self._server.mariadb and (number & ANSI_QUOTES or b"ANSI_QUOTES" in value):
            self._status |= ANSI_QUOTES_STATUS

    def _answer(self) -> None:
        self._write(b"\0\0\0" + struct.pack("<HH", self._status, 0))

    def _read(self) -> bytes:
        parts = []
        while True:
            head = self._stream.read(4)
            if len(head) < 4:
                return b""
            size = int.from_bytes(head[:3], "little")
            self._number = head[3] + 1
            parts.append(self._stream.read(size))
            if size < 0xFFFFFF:
                return b"".join(parts)

    def _write(self, packet: bytes) -> None:
        self._stream.write(len(packet).to_bytes(3, "little") + bytes([self._number & 255]) + packet)
        self._stream.flush()
        self._number += 1
