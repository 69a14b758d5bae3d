"""A terminal for one command line, and what stays to be seen on it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tests.cli.invoke import ROOT

_STEPS = re.compile(r"\r\n|\r|\n|\x1b\[K|\x1b\[[0-9;]*m|[^\r\n\x1b]+|\x1b")


class Shown(NamedTuple):
    """raw: all that came, with single line ends. lines: what a terminal of unlimited width shows at the end."""

    code: int
    raw: bytes
    lines: list[str]


def open_terminal(columns: int = 80) -> tuple[int, int]:
    """Both ends of a pseudo-terminal; the test is skipped where the system has none."""
    import fcntl
    import pty
    import struct
    import termios

    try:
        leader, follower = pty.openpty()
    except OSError as error:
        pytest.skip(f"this system has no pseudo-terminals: {error}")
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return leader, follower


def on_terminal(*words: str, columns: int = 80, pager: str = "cat", **environment: str) -> Shown:
    """Runs a command line whose input, output and messages are one terminal."""
    leader, follower = open_terminal(columns)
    own = {"PYTHONPATH": str(ROOT), "BINLOGTOOL_PAGER": pager, "TERM": "xterm", "XDG_CONFIG_HOME": "/nonexistent"}
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LC_ALL", "LC_CTYPE")}
    command = [sys.executable, "-m", "binlogtool", *words]
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), follower)
    process = subprocess.Popen(command, env={**inherited, "LANG": "C.UTF-8", **own, **environment}, **streams)
    os.close(follower)
    data = b""
    try:
        while chunk := os.read(leader, 65536):
            data += chunk
    except OSError:  # the other side is closed
        pass
    os.close(leader)
    return Shown(process.wait(60), data.replace(b"\r\n", b"\n"), lines_of(data.decode("utf-8", "replace")))


def lines_of(text: str) -> list[str]:
    """What stays: a carriage return goes to the first column, `ESC [ K` clears from there."""
    lines, at = [""], 0
    for step in _STEPS.findall(text):
        if step in ("\r\n", "\n"):
            lines.append("")
            at = 0
        elif step == "\r":
            at = 0
        elif step == "\x1b[K":
            lines[-1] = lines[-1][:at]
        elif not step.startswith("\x1b"):
            lines[-1] = lines[-1][:at].ljust(at) + step + lines[-1][at + len(step) :]
            at += len(step)
    return lines
