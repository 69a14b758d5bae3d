"""A driver program of its own that may be killed: follows the logs in a folder into a Parquet table.

    python following.py once|on IN CHECKPOINT OUT

once: until all that is there was read. on: until it is stopped.
"""

from __future__ import annotations

import sys

from binlogtool.spark.session import SparkJobSession, open_session


def follow(session: SparkJobSession, how: str, folder: str, checkpoint: str, out: str) -> None:
    options = {"columns": "file,record,offset,type", "maxBytesPerTrigger": "64KiB", "engine": "python"}
    rows = session.spark.readStream.format("binlogtool").options(**options).load(folder)
    sink = rows.coalesce(1).writeStream.format("parquet").option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if how == "once" else {"processingTime": "100 milliseconds"}
    sink.trigger(**trigger).start(out).awaitTermination()


if __name__ == "__main__":
    with open_session("local[1]") as session:
        follow(session, *sys.argv[1:])
