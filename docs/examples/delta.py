"""Keeps a Delta table as a table of the log is: `python delta.py LOGS OBJECT KEY TABLE`. Extra: `spark`, PySpark 4.2.

LOGS is a directory that a server writes, OBJECT a table in it (shop.orders), KEY its primary key, TABLE a directory for
the Delta table; beside it, TABLE.checkpoint remembers how far the logs were read. Run it again, and it goes on.
A micro-batch that is done twice, after a crash, changes nothing: the last state of each key is merged.

Rows of MINIMAL images change the columns that they have; TRUNCATE and DROP TABLE empty the table. Where the log does
not say what the table is like (a statement that changes rows, a row that cannot be decoded, columns that the Delta
table does not have, a partial row whose other columns are nowhere), it ends with an error, and nothing of the batch is
merged.
"""

import os
import sys

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from binlogtool.export.spark_settings import SparkMaster
from binlogtool.spark.session import open_session

DELTA = (
    ("spark.jars.packages", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
    ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
    ("spark.sql.shuffle.partitions", "8"),
)
ROWS = ("INSERT", "UPDATE", "DELETE")
EMPTIES = ("TRUNCATE", "DROP")
PLACE = ("file", "offset", "row")


def demand_certain(changes: DataFrame) -> None:
    """Raises where the log does not say for certain what became of the table."""
    odd = changes.where(~sql.col("op").isin(*ROWS, *EMPTIES) | sql.col("unfit").isNotNull())
    odd = odd.select("file", "offset", "op", "unfit", "findings").limit(1).collect()
    if odd:
        raise ValueError(f"the state of the table after this change is unknown: {odd[0].asDict()}")


def behind_the_last(changes: DataFrame) -> tuple[DataFrame, bool]:
    """The changes of rows behind the last TRUNCATE or DROP TABLE, and whether there is one."""
    place = sql.struct(*PLACE)
    last = changes.where(sql.col("op").isin(*EMPTIES)).select(sql.max(place).alias("last")).collect()[0]["last"]
    rows = changes.where(sql.col("op").isin(*ROWS))
    if last is None:
        return rows, False
    return rows.where(place > sql.struct(*(sql.lit(last[name]).alias(name) for name in PLACE))), True


def is_there(column: str, image: str = "after") -> Column:
    """Does an image of a row have a column?"""
    absent = sql.array_contains("absent", f"{image}.{column}")
    return sql.col(image).isNotNull() & ~sql.coalesce(absent, sql.lit(False))


def last_states(rows: DataFrame, key: str) -> DataFrame:
    """Of each key its last state: `op`, `key_of_row`, each column, and whether its value is known (`has_…`).

    A key that changes is a DELETE of the old one and an INSERT of the new one.
    """
    names = rows.select("after.*").columns
    old = sql.when(is_there(key, "before"), sql.col(f"before.{key}"))
    new = sql.when(is_there(key), sql.col(f"after.{key}"))
    rows = rows.withColumn("old_key", old).withColumn("new_key", sql.coalesce(new, old))
    moves = sql.col("old_key") != sql.col("new_key")
    gone = rows.where((sql.col("op") == "DELETE") | ((sql.col("op") == "UPDATE") & moves))
    gone = gone.select(
        *PLACE,
        sql.lit(0).alias("step"),
        sql.lit("DELETE").alias("op"),
        sql.col("old_key").alias("key_of_row"),
        *(sql.lit(None).cast(rows.schema["after"].dataType[n].dataType).alias(n) for n in names),
        *(sql.lit(False).alias(f"has_{n}") for n in names),
    )
    op = sql.when((sql.col("op") == "INSERT") | moves, "INSERT").otherwise("UPDATE")
    made = rows.where(sql.col("op") != "DELETE")
    made = made.select(
        *PLACE,
        sql.lit(1).alias("step"),
        op.alias("op"),
        sql.col("new_key").alias("key_of_row"),
        *(sql.col(f"after.{n}").alias(n) for n in names),
        *(is_there(n).alias(f"has_{n}") for n in names),
    )
    steps = gone.unionByName(made)
    inserts = steps.where("op = 'INSERT'").where(" or ".join(f"not has_{n}" for n in names)).limit(1).collect()
    if inserts:
        raise ValueError(f"the image of a new row does not have all columns (binlog_row_image): {inserts[0].asDict()}")
    order = [*PLACE, "step"]
    so_far = Window.partitionBy("key_of_row").orderBy(*order)
    steps = steps.withColumn("life", sql.sum((sql.col("op") != "UPDATE").cast("int")).over(so_far))
    life = (
        Window.partitionBy("key_of_row", "life")
        .orderBy(*order)
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    newest = Window.partitionBy("key_of_row").orderBy(*(sql.desc(name) for name in order))
    values = [
        sql.last(sql.when(sql.col(f"has_{n}"), sql.struct(n)), ignorenulls=True).over(life).alias(f"last_{n}")
        for n in names
    ]
    first = sql.first("op").over(life).alias("first_op")
    found = steps.select("key_of_row", first, *values, sql.row_number().over(newest).alias("n")).where("n = 1")
    return found.select(
        sql.col("first_op").alias("op"),
        "key_of_row",
        *(sql.col(f"last_{n}.{n}").alias(n) for n in names),
        *(sql.col(f"last_{n}").isNotNull().alias(f"has_{n}") for n in names),
    )


def main(logs: str, name: str, key: str, table: str) -> None:
    """Says how many rows the table has when all that is there now was read."""
    with open_session(SparkMaster(os.environ.get("MASTER", "local[*]"), DELTA)) as session:
        spark = session.spark
        source = spark.readStream.format("binlogtool").option("object", name).load(logs)
        columns = source.select("after.*").schema

        def merge(changes: DataFrame, _number: int) -> None:
            changes = changes.persist()
            demand_certain(changes)
            rows, empties = behind_the_last(changes)
            last_states(rows, key).persist().createOrReplaceTempView("last_states")
            own = changes.sparkSession
            whole = " and ".join(f"has_{n}" for n in columns.names)
            kept = f"(select {key} from delta.`{table}` where {str(not empties).lower()})"
            lost = own.sql(
                f"select * from last_states where op = 'UPDATE' and not ({whole}) and key_of_row not in {kept}"
            )
            if lost := lost.limit(1).collect():
                raise ValueError(f"a row was changed whose other columns are not known: {lost[0].asDict()}")
            if empties:
                own.sql(f"delete from delta.`{table}`")
            sets = ", ".join(f"`{n}` = if(new.has_{n}, new.`{n}`, known.`{n}`)" for n in columns.names)
            names = ", ".join(f"`{n}`" for n in columns.names)
            values = ", ".join(f"new.`{n}`" for n in columns.names)
            own.sql(
                f"merge into delta.`{table}` as known using last_states as new on known.{key} = new.key_of_row "
                f"when matched and new.op = 'DELETE' then delete when matched then update set {sets} "
                f"when not matched and new.op <> 'DELETE' then insert ({names}) values ({values})"
            )

        if not os.path.isdir(table):
            spark.createDataFrame([], columns).write.format("delta").save(table)
        sink = source.writeStream.foreachBatch(merge).option("checkpointLocation", f"{table}.checkpoint")
        session.run_spark_action(sink.trigger(availableNow=True).start().awaitTermination)
        print(f"{name}: {spark.read.format('delta').load(table).count()} rows")
        spark.read.format("delta").load(table).orderBy(key).show()


if __name__ == "__main__":
    main(*sys.argv[1:])
