"""Object stores that refuse, fail, hang or break off: one line, the exit status of an input error, and soon."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.cli.invoke import Result, invoke
from tests.export.store import KEYS

SIZE = 5_000_000


class Faulty(BaseHTTPRequestHandler):
    """Does what the server's `mode` says: a status, or `hang`, or `break`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        if self.mode == "hang":
            self.server.over.wait(60)  # type: ignore[attr-defined]
        self.answer(int(self.mode) if self.mode.isdigit() else 200, SIZE)

    def do_GET(self) -> None:
        if self.mode.isdigit():
            body = b'<?xml version="1.0"?><Error><Code>InternalError</Code><Message>Not today</Message></Error>'
            self.answer(int(self.mode), len(body))
            self.wfile.write(body)
            return
        self.answer(206, 4096)
        self.wfile.write(bytes(1000))
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    @property
    def mode(self) -> str:
        return self.server.mode  # type: ignore[attr-defined,no-any-return]

    def answer(self, status: int, size: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
        self.end_headers()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    server.daemon_threads, server.over = True, Event()
    Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}.items():
        monkeypatch.setenv(name, value)
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


def told(tmp_path: Path, seconds: float, *words: str) -> Result:
    """One command on a log of the store: it fails in time, in one line, and leaves nothing."""
    began = time.monotonic()
    done = invoke(*words, "s3://logs/transaction.log")
    assert time.monotonic() - began < seconds
    assert done.code == 4 and done.err.count("\n") == 1 and list(tmp_path.iterdir()) == []
    assert done.err.startswith("binlogtool: s3://logs/transaction.log: cannot be read: AWS Error")
    return done


@pytest.mark.full
@pytest.mark.parametrize("command", ["verify", "convert"])
@pytest.mark.parametrize(
    ("mode", "words"),
    [("403", "ACCESS_DENIED"), ("500", "HTTP status 500"), ("503", "HTTP status 503"), ("break", "partial file")],
)
def test_an_error_of_the_server_is_one_line(mode: str, words: str, command: str, faulty: Any, tmp_path: Path) -> None:
    faulty.mode = mode
    more = ("--to", "raw", "-o", str(tmp_path / "out")) if command == "convert" else ()
    assert words in told(tmp_path, 30, command, *more).err


def test_a_server_that_nobody_started_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    assert "Could not connect" in told(tmp_path, 30, "dump").err


@pytest.mark.full
def test_a_server_that_does_not_answer_is_given_up(faulty: Any, tmp_path: Path) -> None:
    faulty.mode = "hang"
    assert "Timeout was reached" in told(tmp_path, 60, "dump").err
