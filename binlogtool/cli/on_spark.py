"""Options of commands that can run on Spark."""

from __future__ import annotations

from typing import Any

import click

import binlogtool
from binlogtool.cli.options import DURATION, option

MASTER_HELP = "Do it on Spark: local[*] (embedded), or a cluster whose machines all see the files, spark://HOST:PORT."


def spark_options(help: str = MASTER_HELP, default: str | None = None) -> list[click.Parameter]:
    """Return new option objects. help: of --master; default: its value if it is not given."""
    return [
        option(["--master"], default=default, metavar="URL", help=help),
        option(
            ["--conf"],
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting of Spark; repeatable; goes before spark-defaults.conf, which goes before binlogtool's own.",
        ),
        option(
            ["--wait-executors"],
            type=DURATION,
            metavar="DURATION",
            help="So long may a cluster be without executors; then status 4 (default: 120s).",
        ),
    ]


def pop_master(options: dict[str, Any]) -> str | binlogtool.SparkMaster | None:
    """Remove the Spark options from `options`, and return the master; None = do not use Spark.

    Raises:
        UsageError: settings without a master, or an invalid setting.
    """
    url, conf, wait_executors = (options.pop(name) for name in ("master", "conf", "wait_executors"))
    if not conf and wait_executors is None:
        return None if url is None else str(url)
    if url is None:
        raise click.UsageError("--conf and --wait-executors are for Spark: they need --master.")
    return binlogtool.SparkMaster.parse(url, conf, wait_executors)
