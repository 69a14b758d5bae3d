"""Masters whose sessions live for seconds."""

from __future__ import annotations

from binlogtool.pipeline import java
from binlogtool.pipeline.master import Master


def short_lived(url: str) -> Master:
    """Its Java compiles nothing for a long life: in a test that takes more than it gives back."""
    return Master(url, (("spark.driver.extraJavaOptions", " ".join(java.SMALL)),))
