"""The driver's Java is started as Spark's own launcher would start it, but for the launcher."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pyspark
import pytest

from binlogtool.spark import java

HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=file:/a -Djava.io.tmpdir=/b",
}
DROPPED = {"--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"}
"""By the script that stands for `java` (`java.make_java_home`)."""
UNPROVEN = ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in java._USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("plain")
def test_java_gets_what_the_launcher_of_spark_gives_it(tmp_path: Path) -> None:
    program = java.find_java()
    conf = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    main = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", *conf, "pyspark-shell"]
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": str(program.parent.parent),
        "SPARK_SCALA_VERSION": "2.13",
    }
    said = subprocess.run([program, "-cp", f"{HOME}/jars/*", *main], env=environment, capture_output=True, check=True)
    theirs = said.stdout.decode().strip("\0\n").split("\0")
    home = java.make_spark_home(tmp_path / "java", SETTINGS, tmp_path)
    assert home == tmp_path / "spark"
    text = (home / "bin" / "spark-submit").read_text()
    ours = shlex.split(next(line for line in text.splitlines() if line.startswith("exec ")))[1:]
    options = [
        word for word in theirs[3 : theirs.index("org.apache.spark.deploy.SparkSubmit") + 1] if word not in DROPPED
    ]
    assert ours[3:] == [*options, "$@"]
    assert ours[:3] == [str(tmp_path / "java" / "bin" / "java"), "-cp", f"{HOME}/jars/*"]
    (tmp_path / "small").mkdir()
    java.make_spark_home(tmp_path / "java", SETTINGS, tmp_path / "small", small=True)
    text = (tmp_path / "small" / "spark" / "bin" / "spark-submit").read_text()
    small = shlex.split(next(line for line in text.splitlines() if line.startswith("exec ")))[1:]
    own = [*UNPROVEN, *java.NO_LOGGING_OPTIONS, "org.apache.spark.api.python.PythonGatewayServer", "$@"]
    assert small[3:] == [*options[:-1], *own]
    assert small[:2] == ours[:2] and "*" not in small[2]


def test_java_starts_without_the_proof_of_classes_and_says_nothing_of_it() -> None:
    done = subprocess.run([java.find_java(), *UNPROVEN, "-version"], capture_output=True, text=True, check=True)
    assert done.stdout == "" and "warning" not in done.stderr.lower()


def test_a_small_job_has_the_jars_that_write_tables_and_those_with_most_classes_come_first() -> None:
    jars = [os.path.basename(path) for path in java.build_class_path(small=True).split(os.pathsep)]
    every = {path.name for path in (HOME / "jars").glob("*.jar")}
    assert jars[0].startswith("spark-catalyst") and len(jars) == len(set(jars)) and set(jars) < every
    left_out = {name.split("_")[0] for name in every - set(jars) if name.startswith("spark-")}
    assert left_out >= {"spark-mllib", "spark-hive"} and "spark-mllib-local" not in left_out
    for needed in ("spark-core_", "spark-sql_", "parquet-hadoop", "orc-core", "hive-storage-api", "zstd-jni", "snappy"):
        assert any(name.startswith(needed) for name in jars)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS"])
def test_who_says_how_spark_starts_gets_its_own_scripts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    assert java.make_spark_home(tmp_path / "java", SETTINGS, tmp_path) is None
