"""Masters whose sessions live for seconds."""

from __future__ import annotations

from binlogtool.export.spark_master import SparkMaster


def short_lived(url: str) -> SparkMaster:
    """Its Java compiles nothing for a long life: in a test that takes more than it gives back."""
    return SparkMaster(url, (("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),))
