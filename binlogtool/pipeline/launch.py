"""Start the driver's Java directly; Spark's own scripts first start another Java to build the command line.

The scripts are used if there is something to build: the user's settings or environment, or a cluster. For a small job
Java gets less: only the part of Spark that PySpark talks to, and only the jars that may be searched for a class.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from binlogtool.pipeline.spark_settings import JAVA_OPTIONS

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
"""What Spark's launcher adds (org.apache.spark.launcher.JavaModuleOptions of 4.3), except for what `java` drops
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
"""Java verifies the bytecode of each class. The classes of a small job come only from the jars of the
installed PySpark, which is trusted anyway; nothing from a log becomes a class. Verification takes a
seventh of such a job. Java accepts the second option only after the first."""

_EXCLUDED_JARS = (
    "spark-mllib_", "spark-graphx", "spark-hive", "spark-connect", "spark-kubernetes", "spark-yarn", "kubernetes-",
    "hive-beeline", "hive-cli", "hive-common", "hive-exec", "hive-jdbc", "hive-metastore", "hive-serde",
    "hive-service-rpc", "hive-shims",
)  # fmt: skip
"""Jars that are not needed to write tables. MLlib registers functions by reflection in each session: a
quarter of a small job."""

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
    """Create a SPARK_HOME in `folder` whose `bin/spark-submit` starts the driver's Java; None if Spark's own is
    needed.

    settings: settings of the session, from which memory and Java options are taken. small: for a small job without
      settings
    of the user.
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
