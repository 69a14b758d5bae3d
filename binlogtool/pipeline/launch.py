"""Starts the driver's Java directly. Spark's own scripts start another Java before, only to write its command line.

They are used where there is something to put together: settings or an environment of the user's, or a cluster.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

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

_SUBMIT = """#!/bin/sh
export SPARK_HOME={home}
exec {command} org.apache.spark.deploy.SparkSubmit "$@"
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


def make_spark_home(java_home: Path, settings: Mapping[str, str], folder: Path) -> Path | None:
    """A SPARK_HOME in `folder` whose `bin/spark-submit` is the driver's Java; None where the real one is needed.

    settings: those of the session; of these the driver's Java gets its memory and options.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    if any(name in os.environ for name in _USERS) or (home / "conf").exists() or not (home / "jars").is_dir():
        return None
    script = folder / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    words = [
        str(java_home / "bin" / "java"), "-cp", f"{home}/jars/*", f"-Xmx{settings['spark.driver.memory']}",
        *shlex.split(settings["spark.driver.extraJavaOptions"]), *MODULE_OPTIONS,
    ]  # fmt: skip
    script.write_text(_SUBMIT.format(home=shlex.quote(str(home)), command=shlex.join(words)))
    script.chmod(0o700)
    return script.parent.parent
