"""Masters whose sessions live for seconds."""

from __future__ import annotations

from binlogtool.export.spark_master import SparkMaster
from binlogtool.spark import java


def short_lived(url: str) -> SparkMaster:
    """Its Java compiles nothing for a long life: in a test that takes more than it gives back."""
    return SparkMaster(url, (("spark.driver.extraJavaOptions", " ".join(java.SMALL_JOB_OPTIONS)),))
