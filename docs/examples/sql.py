"""Runs SQL over converted logs: `python sql.py ROWS FILE.sql...`; the table is called `log`. Needs the extra `spark`.

The session is that of `binlogtool convert`: embedded, quiet, with its own Java. MASTER (environment) names a cluster.
"""

import os
import sys
from pathlib import Path

from binlogtool.spark.session import open_session


def main(rows: str, *queries: str) -> None:
    """Prints the result of each query."""
    with open_session(os.environ.get("MASTER", "local[*]")) as session:
        session.spark.read.parquet(rows).createOrReplaceTempView("log")
        for name in queries:
            table = session.spark.sql(Path(name).read_text())
            print(f"-- {Path(name).name}")
            print(session.run_spark_action(lambda table=table: table._show_string(40, 64)))


if __name__ == "__main__":
    main(*sys.argv[1:])
