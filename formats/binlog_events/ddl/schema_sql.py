"""Statements of --schema: table definitions at the beginning of a log."""

from __future__ import annotations

import re
from functools import lru_cache

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.create_table import CreateTable
from binlogtool.formats.binlog_events.ddl.definitions import DdlStatement, TableDefinitions
from binlogtool.formats.binlog_events.ddl.words import QUOTED_NAME, split_statements

_CREATE = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b", re.IGNORECASE)
_USE = re.compile(rf"\s*USE\s+({QUOTED_NAME}|\S+)\s*\Z", re.IGNORECASE)


def parse_schema_statements(sql: str) -> list[DdlStatement]:
    """Return the statements of a script with the database that each runs in; "" if the script does not say.

    Raises:
        UsageError: they do not follow the lexical rules; the message names the line.
    """
    database, result = "", []
    for statement in split_statements(sql):
        use = _USE.match(statement.text)
        if use is not None:
            database = use[1].strip("`").replace("``", "`")
        else:
            result.append(DdlStatement(database, statement.text))
    return result


@lru_cache(8)
def parse_schema(sql: str) -> TableDefinitions:
    """Return the definitions after these statements; copy them before changing them.

    Raises:
        UsageError: a CREATE TABLE is not supported; the message names its line.
    """
    try:
        for statement in split_statements(sql):
            if _CREATE.match(statement.text):
                CreateTable(statement)
        definitions = TableDefinitions(given=True)
        for ddl in parse_schema_statements(sql):
            definitions.apply_statement(ddl)
    except UsageError as error:
        raise UsageError(f"--schema: {error}") from None
    definitions.given, definitions.conflicts = False, 0
    return definitions
