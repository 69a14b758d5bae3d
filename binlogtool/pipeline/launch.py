"""Starts the driver's Java directly. Spark's own scripts start another Java before, only to write its command line.

They are used where there is something to put together: settings or an environment of the user's, or a cluster. For a
small job Java gets even less: the part of Spark that PySpark talks to, and only the jars that may be asked for a class.
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
"""What Spark's launcher adds (org.apache.spark.launcher.JavaModuleOptions of 4.3), but for what `java` drops anyway."""

_SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"
_GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""What SparkSubmit ends up at for PySpark, when it has put settings together, which a small job has none of."""

SILENT = (
    "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider",
    "-Dslf4j.internal.verbosity=ERROR",
    "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory",
    "-Dio.netty.jfr.enabled=false",
)
"""A small job keeps no log: what goes wrong comes as an exception. Setting up Log4j takes a tenth of its time."""

AS_INSTALLED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Java proves of each class that no compiler made it break Java's rules. Those of a small job come from the jars of the
installed PySpark alone, whose Python is taken as it is, too; what is made of a log is no class. The proof takes a
seventh of such a job. Java takes the second option behind the first only."""

_NEVER = (
    "spark-mllib_", "spark-graphx", "spark-hive", "spark-connect", "spark-kubernetes", "spark-yarn", "kubernetes-",
    "hive-beeline", "hive-cli", "hive-common", "hive-exec", "hive-jdbc", "hive-metastore", "hive-serde",
    "hive-service-rpc", "hive-shims",
)  # fmt: skip
"""Jars that no table is written with. That of MLlib makes functions of its own, by reflection, in each session: a
quarter of a small job."""

_FIRST = (
    "spark-catalyst", "scala-library", "spark-core", "spark-sql-api", "spark-sql", "log4j-core", "jackson-databind",
    "parquet-column", "hadoop-client-api", "parquet-", "spark-", "jackson-", "hadoop-client-runtime", "arrow-",
)  # fmt: skip
"""Jars with most of the classes: each class is looked for in one jar after the other."""

_SUBMIT = """#!/bin/sh
export SPARK_HOME={home}
exec {command} "$@"
"""
_USERS = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_JAVA_OPTS",
    "PYSPARK_SUBMIT_ARGS",
    "JDK_JAVA_OPTIONS",
)
"""Variables by which users change what Spark's scripts do."""


def is_direct() -> bool:
    """Can a driver on this machine be started without Spark's scripts?"""
    home = _installed()
    return not any(name in os.environ for name in _USERS) and not (home / "conf").exists() and (home / "jars").is_dir()


def _installed() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def make_spark_home(java_home: Path, settings: Mapping[str, str], folder: Path, *, small: bool = False) -> Path | None:
    """A SPARK_HOME in `folder` whose `bin/spark-submit` is the driver's Java; None where the real one is needed.

    settings: those of the session; of these the driver's Java gets its memory and options. small: for a small job, of
    which the user set nothing.
    """
    home = _installed()
    if not is_direct():
        return None
    script = folder / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    words = [
        str(java_home / "bin" / "java"), "-cp", class_path(small=small),
        f"-Xmx{settings['spark.driver.memory']}", *shlex.split(settings[JAVA_OPTIONS]),
        *MODULE_OPTIONS, *((*AS_INSTALLED, *SILENT, _GATEWAY_CLASS) if small else (_SUBMIT_CLASS,)),
    ]  # fmt: skip
    script.write_text(_SUBMIT.format(home=shlex.quote(str(home)), command=shlex.join(words)))
    script.chmod(0o700)
    return script.parent.parent


def class_path(*, small: bool) -> str:
    """Where Java finds the classes of the installed PySpark. small: those of a small job."""
    home = _installed()
    if not small:
        return f"{home}/jars/*"
    jars = [path for path in (home / "jars").glob("*.jar") if not path.name.startswith(_NEVER)]
    return os.pathsep.join(str(path) for path in sorted(jars, key=lambda path: (_turn(path.name), path.name)))


def _turn(name: str) -> int:
    return next((number for number, prefix in enumerate(_FIRST) if name.startswith(prefix)), len(_FIRST))
