"""`binlogtool` without its start: `python -m tests.docs.forking SOCKET` has imported it, and forks for each command.

The documents have more than a hundred commands; most of the time of each would be that of imports. A shim in the place
of the program hands its words, directory, environment and its three streams over, and ends as the command does.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

SHIM = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({path!r})
words = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(words).to_bytes(4, "big")], [0, 1, 2])
server.sendall(words)
told = server.recv(16)
sys.exit(int(told) if told else 70)
"""


@cache
def shim() -> str:
    """The text of a program that stands for `binlogtool` as long as this process runs."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "s"
    root = Path(__file__).resolve().parents[2]
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.forking", str(path)], cwd=root, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(root), "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    atexit.register(_end, server, folder)
    deadline = time.monotonic() + 120
    while not path.exists():
        assert server.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return SHIM.format(python=sys.executable, path=str(path))


def _end(server: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    server.terminate()
    server.wait(30)
    folder.cleanup()


def serve(path: Path) -> None:
    """Forks for each command line that comes, until it is ended."""
    from binlogtool.cli.command_table import COMMANDS
    from binlogtool.formats import list_names, load_format

    for command_module, _ in COMMANDS.values():
        import_module(command_module.partition(":")[0])
    for package in ("core", "prediction", "repair", "report", "schema", "verification"):  # not export: no pyarrow
        found = import_module(f"binlogtool.{package}")
        for module in iter_modules(found.__path__, f"{found.__name__}."):
            if not module.name.endswith("._native"):  # a library of compiled functions, no module
                import_module(module.name)
    for name in list_names():
        load_format(name)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path) + ".new")
    listening.listen(64)
    os.rename(str(path) + ".new", path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(asked)
        asked.close()


def _answer(asked: socket.socket) -> None:
    code = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, streams, _, _ = socket.recv_fds(asked, 4, 3)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        with asked.makefile("rb") as rest:
            words, place, environment = json.loads(rest.read(int.from_bytes(head, "big")))
        code = _run(words, place, environment)
    finally:
        asked.sendall(str(code).encode())
        os._exit(code)


def _run(words: list[str], place: str, environment: dict[str, str]) -> int:
    from binlogtool.cli import main

    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv = ["binlogtool", *words]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
