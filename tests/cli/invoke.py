"""Runs the command line inside the test process, and in a process of its own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from binlogtool.cli import main

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)


class Result(NamedTuple):
    """What a run ended with, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")


def invoke(*args: str, environment: Mapping[str, str] | None = None, encoding: str = "utf-8") -> Result:
    """One command line in this process; the user's configuration is out of reach."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before, streams = dict(os.environ), (sys.stdout, sys.stderr)
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdout = io.TextIOWrapper(out, encoding=encoding)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace")
    os.environ.update({"XDG_CONFIG_HOME": "/nonexistent", **(environment or {})})
    try:
        code = main(list(args))
        sys.stdout.flush()
        sys.stderr.flush()
        return Result(code, out.getvalue(), err.getvalue().decode("utf-8"))
    finally:
        sys.stdout, sys.stderr = streams
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def program(*args: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """One command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": "/nonexistent", **options.pop("env", {})}
    options = {"capture_output": True, "timeout": 60, "check": False, "stdin": subprocess.DEVNULL, **options}
    if options.get("stdin") is None:
        del options["stdin"]
    if "stdout" in options or "stderr" in options:
        del options["capture_output"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-m", "binlogtool", *args], env=environment, **options)
