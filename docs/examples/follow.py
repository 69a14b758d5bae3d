"""Follows the logs in a directory into a Parquet table: `python follow.py LOGS CHECKPOINT ROWS`. Extra: `spark`.

Ends when all that is there now was read; run it again, and it goes on from the checkpoint. For a query that never ends,
take `trigger(processingTime="10 seconds")`. MASTER (environment) names a cluster.
"""

import os
import sys

from binlogtool.spark.session import open_session


def main(logs: str, checkpoint: str, rows: str) -> None:
    """Says how many rows each micro-batch had."""
    with open_session(os.environ.get("MASTER", "local[*]")) as session:
        new = session.spark.readStream.format("binlogtool").option("maxBytesPerTrigger", "1GiB").load(logs)
        sink = new.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start(rows)
        session.run_spark_action(query.awaitTermination)
        for batch in query.recentProgress:
            print(f"batch {batch.batchId}: {batch.numInputRows} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
