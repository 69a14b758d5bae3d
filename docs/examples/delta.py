"""Keeps a Delta table as a table of the log is: `python delta.py LOGS OBJECT KEY TABLE`. Extra: `spark`, PySpark 4.2.

LOGS is a directory that a server writes, OBJECT a table in it (shop.orders), KEY its primary key, TABLE a directory for
the Delta table; beside it, TABLE.checkpoint remembers how far the logs were read. Run it again, and it goes on.
A micro-batch that is done twice, after a crash, changes nothing: the last change of each key is merged.
"""

import os
import sys

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from binlogtool.pipeline.master import Master
from binlogtool.pipeline.session import open_session

DELTA = (
    ("spark.jars.packages", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
    ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
    ("spark.sql.shuffle.partitions", "8"),
)


def last_changes(changes: DataFrame, key: str) -> DataFrame:
    """Of each key the last change: `op`, and the columns as they are behind it."""
    rows = changes.where("op in ('INSERT', 'UPDATE', 'DELETE')")
    moved = rows.where(f"op = 'UPDATE' and before.{key} <> after.{key}").withColumn("op", sql.lit("DELETE"))
    rows = rows.withColumn("key_of_row", sql.coalesce(f"after.{key}", f"before.{key}"))
    rows = rows.unionByName(moved.withColumn("key_of_row", sql.col(f"before.{key}")))
    newest = Window.partitionBy("key_of_row").orderBy(*(sql.desc(name) for name in ("file", "offset", "row")))
    kept = rows.withColumn("n", sql.row_number().over(newest)).where("n = 1")
    return kept.select("op", "key_of_row", "after.*")


def main(logs: str, name: str, key: str, table: str) -> None:
    """Says how many rows the table has when all that is there now was read."""
    with open_session(Master(os.environ.get("MASTER", "local[*]"), DELTA)) as session:
        spark = session.spark
        source = spark.readStream.format("binlogtool").option("object", name).load(logs)

        def merge(changes: DataFrame, _number: int) -> None:
            last_changes(changes, key).createOrReplaceTempView("last_changes")
            changes.sparkSession.sql(
                f"merge into delta.`{table}` as known using last_changes as new on known.{key} = new.key_of_row "
                "when matched and new.op = 'DELETE' then delete when matched then update set * "
                "when not matched and new.op <> 'DELETE' then insert *"
            )

        columns = source.select("after.*").schema
        if not os.path.isdir(table):
            spark.createDataFrame([], columns).write.format("delta").save(table)
        sink = source.writeStream.foreachBatch(merge).option("checkpointLocation", f"{table}.checkpoint")
        session.run(sink.trigger(availableNow=True).start().awaitTermination)
        print(f"{name}: {spark.read.format('delta').load(table).count()} rows")
        spark.read.format("delta").load(table).orderBy(key).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
