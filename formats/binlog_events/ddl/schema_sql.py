"""Statements of --schema: table definitions at the beginning of a log."""

from __future__ import annotations

import re
from functools import lru_cache

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.create_table import CreateTable
from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement, Definitions
from binlogtool.formats.binlog_events.ddl.words import QUOTED, statements

_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)
_USE = re.compile(rf"\s*USE\s+({QUOTED}|\S+)\s*\Z", re.IGNORECASE)


def schema_statements(sql: str) -> list[DdlStatement]:
    """Return the statements of a script with the database that each runs in; "" if the script does not say.

    Raises:
        UsageError: they do not follow the lexical rules; the message names the line.
    """
    database, found = "", []
    for statement in statements(sql):
        used = _USE.match(statement.text)
        if used is not None:
            database = used[1].strip("`").replace("``", "`")
        else:
            found.append(DdlStatement(database, statement.text))
    return found


@lru_cache(8)
def schema_definitions(sql: str) -> Definitions:
    """Return the definitions after these statements; copy them before changing them.

    Raises:
        UsageError: a CREATE TABLE is not supported; the message names its line.
    """
    try:
        for statement in statements(sql):
            if _CREATE.match(statement.text):
                CreateTable(statement)
        made = Definitions(given=True)
        for own in schema_statements(sql):
            made.learn(own)
    except UsageError as error:
        raise UsageError(f"--schema: {error}") from None
    made.given, made.conflicts = False, 0
    return made
