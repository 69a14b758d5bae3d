"""The servers that pages talk to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.formats.mysql_binlog.server import Programs, Server

SERVERS = os.environ.get("BINLOGTOOL_SERVER") == "1"


@contextmanager
def mariadb(place: Path, programs: Programs | None = None) -> Iterator[None]:
    """`mariadb` is the client of a server of its own, which is empty. programs: None = the installed one's."""
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder), programs=programs):
        shim, words = place / "shims" / "mariadb", f"--no-defaults -uroot --default-character-set=utf8mb4 -S {folder}/s"
        client = shutil.which("mariadb") if programs is None else programs.client
        shim.write_text(f'#!/bin/sh\nexec {client} {words} "$@"\n')
        shim.chmod(0o755)
        yield
