"""A real S3 protocol server on the loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.export.cluster import end

KEYS = {
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


@contextmanager
def serving() -> Iterator[Any]:
    """The files of a store with the bucket `logs`; the environment names it for as long."""
    pytest.importorskip("moto.server")
    from pyarrow.fs import S3FileSystem

    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as file:
            server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=file)
        try:
            place = wait_for_address(log)
            with pytest.MonkeyPatch.context() as patch:
                for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://{place}"}.items():
                    patch.setenv(name, value)
                options = {"endpoint_override": place, "scheme": "http", "region": "us-east-1"}
                files = S3FileSystem(allow_bucket_creation=True, **options)
                files.create_dir("logs")
                yield files
        finally:
            end(server)


def wait_for_address(log: Path) -> str:
    """Return the address at which the server listens, on a port of the system's choice, once it prints it."""
    deadline = time.monotonic() + 120
    while (found := re.search(r"Running on http://([\d.]+:\d+)", log.read_text())) is None:
        assert time.monotonic() < deadline, f"the store did not start: {log.read_text()}"
        time.sleep(0.05)
    return found[1]


def put(store: Any, key: str, data: bytes) -> str:
    """Writes an object; its URL."""
    with store.open_output_stream(f"logs/{key}", compression=None) as out:
        out.write(data)
    return f"s3://logs/{key}"


def with_place(url: str) -> str:
    """For workers of a Spark that runs since before the store did: they do not have its address."""
    endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    return f"{url}?endpoint_override={endpoint}&scheme=http"


def keys_below(store: Any, key: str) -> list[str]:
    """The objects below a key."""
    from pyarrow.fs import FileSelector

    found = store.get_file_info(FileSelector(f"logs/{key}", recursive=True, allow_not_found=True))
    return sorted(one.path.removeprefix(f"logs/{key}/") for one in found if one.is_file)
