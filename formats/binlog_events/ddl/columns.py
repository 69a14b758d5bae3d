"""Column definitions of a table and their changes by the clauses of ALTER TABLE."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.ddl.create_table import ROW_TIMES, Columns
from binlogtool.formats.binlog_events.ddl.types import charset_of_words, column_hint
from binlogtool.formats.binlog_events.ddl.words import Word
from binlogtool.formats.binlog_events.values.columns import ColumnHint

Part = tuple[str, int]
"""A column of a key, in lower case, and its characters; 0 = all."""

_KEYS = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION"))
_KEY_PAIRS = frozenset((("VECTOR", "INDEX"), ("VECTOR", "KEY"), ("PERIOD", "FOR")))
_HARMLESS = frozenset((
    "ENGINE", "TYPE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "CHECKSUM",
    "TABLE_CHECKSUM", "PAGE_CHECKSUM", "DELAY_KEY_WRITE", "KEY_BLOCK_SIZE", "PACK_KEYS", "STATS_PERSISTENT",
    "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID",
    "TRANSACTIONAL", "INSERT_METHOD", "CONNECTION", "DATA", "UNION", "ENABLE", "DISABLE", "FORCE", "ALGORITHM", "LOCK",
    "WITH", "WITHOUT", "TABLESPACE", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "AUTOEXTEND_SIZE", "SEQUENCE",
    "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "TRUNCATE",
    "EXCHANGE", "DISCARD", "IMPORT", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "SECONDARY_ENGINE", "INDEX", "STORAGE",
    "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PASSWORD", "IETF_QUOTES", "START", "ALTER", "COLLATE",
))  # fmt: skip
"""First words of clauses that leave the columns unchanged."""


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Definition of a table.

    `key`: its primary key. `charset`: of columns that name none; None if unknown. `versioned`: it keeps the
    history of its rows. `given`: it comes from --schema and was not changed since.
    """

    columns: Columns
    key: tuple[Part, ...] = ()
    charset: str | None = None
    versioned: bool = False
    given: bool = False


class _NewColumn(msgspec.Struct, frozen=True):
    """Column that an ALTER TABLE defines.

    `old`: the column that it replaces; None if it is added. `after`: the column before it; "" for the first
    place, None if the statement does not say.
    """

    hint: ColumnHint
    old: str | None = None
    after: str | None = None


class _Alter(msgspec.Struct):
    """Clauses of one ALTER TABLE.

    Column names in them are those before the statement, except after AFTER (`mysql_prepare_alter_table` of the
    servers).
    """

    before: Definition
    key: tuple[Part, ...]
    charset: str | None
    versioned: bool
    dropped: set[str] = msgspec.field(default_factory=set)
    renamed: dict[str, str] = msgspec.field(default_factory=dict)
    new: list[_NewColumn] = msgspec.field(default_factory=list)
    converts: bool = False
    has_period: bool = False
    adds_versioning: bool = False
    drops_versioning: bool = False
    orders: bool = False

    def take(self, clause: Sequence[Word]) -> None:
        """Add one clause.

        Raises:
            UsageError: the clause is not supported.
        """
        words = _without_partitions(clause)
        if not words:
            return
        first, rest = words[0].upper, list(words[1:])
        change = _CLAUSES.get(first)
        if change is not None:
            change(self, rest)
        elif first in _HARMLESS:
            self.charset = charset_of_words([Word("", False), *words]) or self.charset
        elif self.orders and (len(words) == 1 or (len(words) == 2 and words[1].upper in ("ASC", "DESC"))):
            return
        else:
            raise UsageError(f"ALTER TABLE has a clause {first or words[0].text}")

    # -- clauses -------------------------------------------------------------------------------------------------------

    def _add(self, rest: list[Word]) -> None:
        """Take ADD: columns, a key, system versioning."""
        pair = _upper(rest, 0), _upper(rest, 1)
        if pair == ("SYSTEM", "VERSIONING"):
            self.versioned = self.adds_versioning = True
        elif pair[0] == "PRIMARY" or (pair[0] == "CONSTRAINT" and "PRIMARY" in [_upper(rest, i) for i in (1, 2)]):
            self.key = _key(rest)
        elif pair in _KEY_PAIRS:
            self.has_period = self.has_period or (pair[0] == "PERIOD" and _upper(rest, 2) == "SYSTEM_TIME")
        elif pair[0] not in _KEYS and pair[0] != "CONSTRAINT":
            rest, if_missing = _after_exists(_after(rest, "COLUMN"), "IF", "NOT", "EXISTS")
            for definition in _between_brackets(rest) if _upper(rest, 0) == "(" else [rest]:
                if not (if_missing and self._has(_name(definition))):
                    self._define(definition, None)

    def _drop(self, rest: list[Word]) -> None:
        """Take DROP: a column, a key, system versioning."""
        pair = _upper(rest, 0), _upper(rest, 1)
        if pair == ("SYSTEM", "VERSIONING"):
            self.versioned, self.drops_versioning = False, True
        elif pair == ("PRIMARY", "KEY"):
            self.key = ()
        elif pair[0] not in _KEYS and pair not in _KEY_PAIRS and pair[0] != "CONSTRAINT":
            rest, if_exists = _after_exists(_after(rest, "COLUMN"), "IF", "EXISTS")
            name = _name(rest)
            if self._is_old(name, if_exists):
                self.dropped.add(name)

    def _modify(self, rest: list[Word]) -> None:
        """Take MODIFY COLUMN."""
        rest, if_exists = _after_exists(_after(rest, "COLUMN"), "IF", "EXISTS")
        if self._is_old(_name(rest), if_exists):
            self._define(rest, _name(rest))

    def _change(self, rest: list[Word]) -> None:
        """Take CHANGE COLUMN."""
        rest, if_exists = _after_exists(_after(rest, "COLUMN"), "IF", "EXISTS")
        if self._is_old(_name(rest), if_exists):
            self._define(rest[1:], _name(rest))

    def _rename(self, rest: list[Word]) -> None:
        """Take RENAME COLUMN."""
        if _upper(rest, 0) != "COLUMN":
            return  # of the table, or of an index
        rest, if_exists = _after_exists(_after(rest, "COLUMN"), "IF", "EXISTS")
        if _upper(rest, 1) != "TO" or len(rest) < 3:
            raise UsageError("RENAME COLUMN has no TO")
        if self._is_old(_name(rest), if_exists):
            self.renamed[_name(rest)] = rest[2].text

    def _convert(self, rest: list[Word]) -> None:
        """Take CONVERT TO CHARACTER SET."""
        if _upper(rest, 0) == "TO":
            self.charset, self.converts = charset_of_words(rest), True
        elif _upper(rest, 0) not in ("PARTITION", "TABLE"):
            raise UsageError("ALTER TABLE ... CONVERT is not understood")

    def _default(self, rest: list[Word]) -> None:
        """Take DEFAULT CHARACTER SET."""
        self.charset = charset_of_words([Word("DEFAULT", False), *rest]) or self.charset

    def _of_charset(self, rest: list[Word]) -> None:
        """Take CHARACTER SET."""
        self.charset = charset_of_words([Word("CHARACTER", False), *rest])

    def _order(self, rest: list[Word]) -> None:
        """Take ORDER BY."""
        self.orders = True

    # -- columns -------------------------------------------------------------------------------------------------------

    def _has(self, name: str) -> bool:
        """Return whether a column of this name exists or is added."""
        return any(_lower(c) == name for c in self.before.columns) or any(_lower(one.hint) == name for one in self.new)

    def _is_old(self, name: str, if_exists: bool) -> bool:
        """Return whether this column existed before the statement.

        Raises:
            UsageError: it did not, and the statement has no IF EXISTS.
        """
        if any(_lower(column) == name for column in self.before.columns):
            return True
        if if_exists:
            return False
        raise UsageError(f"there is no column {name}")

    def _define(self, words: list[Word], old: str | None) -> None:
        """Add a column definition."""
        words, after = _placed(words)
        if len(words) < 2 or not words[0].text:
            raise UsageError("ALTER TABLE has a column without a type")
        hint = column_hint(words[0].text, words[1:], self.charset)
        self.new.append(_NewColumn(hint, old, after))
        upper = [word.upper for word in words[1:]]
        if "PRIMARY" in upper or ("KEY" in upper and "UNIQUE" not in upper and "COLUMN_FORMAT" not in upper):
            self.key = ((_lower(hint), 0),)

    def result(self) -> Definition:
        """Return the table after the statement.

        Raises:
            UsageError: no server accepts such a table.
        """
        replaced = {one.old: one for one in self.new if one.old is not None}
        implicit = [c for c in self.before.columns if c in ROW_TIMES]
        columns: list[ColumnHint] = []
        for column in self.before.columns:
            name, by = _lower(column), replaced.get(_lower(column))
            if name in self.dropped or column in implicit:
                continue
            if by is not None:
                columns += [by.hint] if by.after is None else []
            else:
                column = self._converted(column)
                columns.append(replace(column, name=self.renamed[name]) if name in self.renamed else column)
        for one in self.new:
            if one.after == "":
                columns.insert(0, one.hint)
            elif one.after is not None:
                columns.insert(_place(columns, one.after) + 1, one.hint)
            elif one.old is None:
                columns.append(one.hint)
        if not self.drops_versioning:
            columns += implicit
        if self.adds_versioning and not self.has_period and not implicit:
            columns += ROW_TIMES
        names = [_lower(column) for column in columns]
        if len(set(names)) != len(names):
            raise UsageError("it would have two columns of one name")
        return Definition(tuple(columns), self._new_key(replaced), self.charset, self.versioned)

    def _converted(self, column: ColumnHint) -> ColumnHint:
        """Return a column with the character set of CONVERT TO."""
        if not self.converts or not (column.charset not in (None, "binary") or column.text):
            return column
        return replace(column, charset=self.charset)

    def _new_key(self, replaced: dict[str, _NewColumn]) -> tuple[Part, ...]:
        """Return the primary key with the column names after the statement.

        A key that the statement itself defines has these names already.
        """
        if self.key is not self.before.key:
            return self.key
        names = {old: _lower(one.hint) for old, one in replaced.items()}
        names |= {old: new.lower() for old, new in self.renamed.items()}
        return tuple((names.get(name, name), size) for name, size in self.key if name not in self.dropped)


_CLAUSES: dict[str, Callable[[_Alter, list[Word]], None]] = {
    "ADD": _Alter._add,
    "DROP": _Alter._drop,
    "MODIFY": _Alter._modify,
    "CHANGE": _Alter._change,
    "RENAME": _Alter._rename,
    "CONVERT": _Alter._convert,
    "DEFAULT": _Alter._default,
    "CHARACTER": _Alter._of_charset,
    "CHARSET": _Alter._default,
    "ORDER": _Alter._order,
}


def altered_definition(before: Definition, clauses: Sequence[Sequence[Word]]) -> Definition:
    """Return the table after these clauses of ALTER TABLE.

    Raises:
        UsageError: a clause is not supported or does not fit the table.
    """
    change = _Alter(before, before.key, before.charset, before.versioned)
    for clause in clauses:
        change.take(clause)
    return change.result()


def _lower(column: ColumnHint) -> str:
    """Return a column's name in lower case."""
    return (column.name or "").lower()


def _upper(words: Sequence[Word], at: int) -> str:
    """Return a word in capitals; empty after the last one."""
    return words[at].upper if at < len(words) else ""


def _name(words: Sequence[Word]) -> str:
    """Return the first word, a column name, in lower case."""
    if not words:
        raise UsageError("ALTER TABLE has no name of a column where one should be")
    return words[0].text.lower()


def _place(columns: Sequence[ColumnHint], name: str) -> int:
    """Return the index of a column."""
    names = [_lower(column) for column in columns]
    if name not in names:
        raise UsageError(f"there is no column {name} to put another one after")
    return names.index(name)


def _after(words: list[Word], optional: str) -> list[Word]:
    """Return the words after an optional first one."""
    return words[1:] if _upper(words, 0) == optional else words


def _after_exists(words: list[Word], *expected: str) -> tuple[list[Word], bool]:
    """Return the words after IF [NOT] EXISTS, and whether it is there."""
    found = [word.upper for word in words[: len(expected)]] == list(expected)
    return (words[len(expected) :] if found else words), found


def _placed(words: list[Word]) -> tuple[list[Word], str | None]:
    """Return a definition and the column that it goes after: "" for FIRST, None if it does not say."""
    if _upper(words, len(words) - 1) == "FIRST":
        return words[:-1], ""
    if len(words) > 2 and words[-2].upper == "AFTER":
        return words[:-2], words[-1].text.lower()
    return words, None


def _without_partitions(clause: Sequence[Word]) -> Sequence[Word]:
    """Return the clause up to PARTITION BY or REMOVE PARTITIONING, which follow the last one without a comma."""
    depth = 0
    for at, word in enumerate(clause):
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 0 and (word.upper, _upper(clause, at + 1)) in (("PARTITION", "BY"), ("REMOVE", "PARTITIONING")):
            return clause[:at]
    return clause


def _between_brackets(words: list[Word]) -> list[list[Word]]:
    """Return the definitions in ADD (a ..., b ...)."""
    found, depth = [list[Word]()], 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 0:
            break
        if depth == 1 and word.upper == ",":
            found.append([])
        elif depth > 1 or word.upper != "(":
            found[-1].append(word)
    return found


def _key(words: Sequence[Word]) -> tuple[Part, ...]:
    """Return the columns in the parentheses after PRIMARY KEY."""
    parts: list[Part] = []
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.upper, 0)
        if depth == 2 and word.text.isdecimal() and parts:
            parts[-1] = parts[-1][0], int(word.text)
        elif depth == 1 and word.upper not in ("(", ")", ",", "ASC", "DESC"):
            parts.append((word.text.lower(), 0))
    return tuple(parts)
