"""Servers of other versions than the installed one, from trees that `.ci/server-tree` made."""

from __future__ import annotations

import os
from pathlib import Path

from tests.formats.mysql_binlog.server import Programs

TREES = ("mysql-9", "mariadb-11.8")


def folder() -> Path:
    """Where the trees are."""
    return Path(os.environ.get("SERVER_TREES", Path.home() / ".cache/binlogtool/server-trees"))


def programs_of(name: str) -> Programs | None:
    """The programs of a tree; None if it was not made."""
    own = folder() / name / "bin"
    if not (own / "server").exists():
        return None
    server, client, binlog, install = (str(own / one) for one in ("server", "client", "binlog", "install"))
    return Programs(server, client, binlog, name.startswith("mysql"), install)
