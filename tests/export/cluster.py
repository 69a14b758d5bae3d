"""A Spark cluster of its own for tests: one master and two workers on the loopback, as processes of this user."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATIENCE_S = 180.0


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of its master. The workers see neither this source tree nor PYTHONPATH."""
    import pyspark

    from binlogtool.spark import find_java

    home = find_java.make_java_home(find_java.find_java(), folder)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_"))}
    environment |= {"JAVA_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONHASHSEED": "0"}
    environment |= {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder / "local")}
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    base = [program, "org.apache.spark.deploy"]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "cluster.log").open("w+b"))

        def start(*words: str) -> None:
            command = [base[0], f"{base[1]}.{words[0]}", "--host", "127.0.0.1", *words[1:]]
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            stack.callback(end, process)

        start("master.Master", "--port", "0", "--webui-port", "0")
        wait_for(folder / "cluster.log", r"I have been elected leader", 1)
        (url,) = wait_for(folder / "cluster.log", r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", 1)
        for _ in range(workers):
            start("worker.Worker", "--webui-port", "0", "-c", "1", "-m", "1g", url)
        wait_for(folder / "cluster.log", r"Successfully registered with master", workers)
        yield url


def executors(folder: Path) -> list[int]:
    """The processes of the executors of the cluster in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            at_work = str((entry / "cwd").readlink()).startswith(str(folder / "work"))
            if at_work and b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def find_writer(folder: Path, output: Path) -> tuple[int, int] | None:
    """A Python worker that has a file below the temporary folder of `output` open, and its executor; or None."""
    jvms = set(executors(folder))
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            links = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            if not any(link.startswith(f"{output}.tmp-") for link in links):
                continue
            ancestor = int(entry.name)
            while ancestor > 1:
                ancestor = int((Path("/proc") / str(ancestor) / "stat").read_text().rpartition(")")[2].split()[1])
                if ancestor in jvms:
                    return int(entry.name), ancestor
    return None


def wait_for(log: Path, pattern: str, times: int) -> list[str]:
    """Wait until the log has so many matches; return them."""
    limit = time.monotonic() + PATIENCE_S
    while len(found := re.findall(pattern, text := log.read_text(errors="replace"))) < times:
        assert time.monotonic() < limit, f"the cluster does not come up:\n{text[-3000:]}"
        time.sleep(0.2)
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def bare_python(folder: Path) -> Path:
    """A Python with the installed dependencies, in which an editable install of this package is not importable."""
    import click

    path = folder / "python"
    packages = Path(click.__file__).parent.parent
    path.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return path
