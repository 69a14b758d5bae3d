"""Column definitions of CREATE TABLE and ALTER TABLE statements.

The words come from sqlglot's tokenizer for MySQL (`ddl.split_sql_statements`). Its grammar is not used, because it
rejects types and clauses that occur in dumps of real servers (POINT, INET6, COMPRESSED, SYSTEM VERSIONING).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from binlogtool.errors import UsageError
from binlogtool.format_api.row_output_interfaces import split_table_name
from binlogtool.formats.binlog_events.ddl.parse_ddl import ParsedDdl
from binlogtool.formats.binlog_events.ddl.split_sql_statements import (
    MAX_SIZE_DIGITS,
    PARENTHESES,
    TABLE_OPTIONS,
    KeyPart,
    SqlWord,
    find_declared_primary_key,
    is_key_or_other_clause,
    parse_key_parts,
    split_words_in_parentheses,
)
from binlogtool.formats.binlog_events.values.column_types import (
    BLOBS,
    ColumnType,
    DeclaredColumn,
    LogicalType,
    normalize_charset_name,
)

# --- Column definitions in SQL as hints ---

_C = ColumnType

_STRING_CODES = frozenset({_C.STRING, _C.VARCHAR, _C.VAR_STRING, _C.VARCHAR_COMPRESSED})
_BLOB_CODES = BLOBS | {_C.BLOB_COMPRESSED}
_FLOAT_CODES = frozenset({_C.FLOAT, _C.DOUBLE})
_DECIMAL_CODES = frozenset({_C.NEWDECIMAL, _C.DECIMAL})
_GEOMETRIES = (
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
    "GEOMETRYCOLLECTION", "GEOMCOLLECTION",
)  # fmt: skip


def _map_names(types: frozenset[ColumnType], *names: str) -> dict[str, frozenset[ColumnType]]:
    """Return type names mapped to their type codes."""
    return dict.fromkeys(names, types)


_INTEGER_TYPES = {
    **_map_names(frozenset({_C.TINY}), "TINYINT", "INT1", "BOOL", "BOOLEAN"),
    **_map_names(frozenset({_C.SHORT}), "SMALLINT", "INT2"),
    **_map_names(frozenset({_C.INT24}), "MEDIUMINT", "INT3", "MIDDLEINT"),
    **_map_names(frozenset({_C.LONG}), "INT", "INTEGER", "INT4"),
    **_map_names(frozenset({_C.LONGLONG}), "BIGINT", "INT8", "SERIAL"),
}
_NUMBER_TYPES = {
    **_INTEGER_TYPES,
    **_map_names(_FLOAT_CODES, "FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL"),
    **_map_names(_DECIMAL_CODES, "DECIMAL", "DEC", "NUMERIC", "FIXED", "NUMBER"),
}
_CHARACTER_TYPES = {
    **_map_names(
        _STRING_CODES | _BLOB_CODES, "CHAR", "CHARACTER", "NCHAR", "VARCHAR", "VARCHARACTER", "NVARCHAR", "NATIONAL"
    ),
    **_map_names(_STRING_CODES | _BLOB_CODES, "VARCHAR2", "CLOB", "LONG"),
    **_map_names(_BLOB_CODES, "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
}
_BYTE_TYPES = {
    **_map_names(_STRING_CODES | _BLOB_CODES, "BINARY", "VARBINARY", "RAW"),
    **_map_names(_BLOB_CODES, "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
}
_OTHER_TYPES = {
    **{name: _STRING_CODES | {code for code in ColumnType if code.name == name} for name in LogicalType.__members__},
    **_map_names(frozenset({_C.BIT}), "BIT"),
    **_map_names(frozenset({_C.YEAR}), "YEAR"),
    **_map_names(frozenset({_C.DATE, _C.NEWDATE}), "DATE"),
    **_map_names(frozenset({_C.TIME, _C.TIME2}), "TIME"),
    **_map_names(frozenset({_C.DATETIME, _C.DATETIME2}), "DATETIME"),
    **_map_names(frozenset({_C.TIMESTAMP, _C.TIMESTAMP2}), "TIMESTAMP"),
    **_map_names(frozenset({_C.GEOMETRY}), *_GEOMETRIES),
    **_map_names(_BLOB_CODES | {_C.JSON}, "JSON"),
    **_map_names(frozenset({_C.ENUM}), "ENUM"),
    **_map_names(frozenset({_C.SET}), "SET"),
}
_TYPE_CODES: Mapping[str, frozenset[ColumnType]] = {**_NUMBER_TYPES, **_CHARACTER_TYPES, **_BYTE_TYPES, **_OTHER_TYPES}
_LOGICAL_TYPES = {kind.name: kind for kind in LogicalType}
_NATIONAL_TYPES = ("NATIONAL", "NCHAR", "NVARCHAR")


def parse_column_definition(
    name: str, definition_words: Sequence[SqlWord], table_charset: str | None
) -> DeclaredColumn:
    """Parse the definition of one column into a hint.

    Args:
        definition_words: the words after the name.
        table_charset: the character set of the table; None if unknown.
    """
    type_name = definition_words[0].upper
    upper_words = [word.upper for word in definition_words]
    charset = _column_charset(type_name, definition_words, table_charset)
    is_unsigned = type_name == "SERIAL" or "UNSIGNED" in upper_words or "ZEROFILL" in upper_words
    return DeclaredColumn(
        name=name,
        types=frozenset(code.value for code in _TYPE_CODES.get(type_name, ())),
        unsigned=is_unsigned if type_name in _NUMBER_TYPES else None,
        charset=charset,
        values=_parse_enum_values(definition_words) if type_name in ("ENUM", "SET") else None,
        logical=_LOGICAL_TYPES.get(type_name),
        generated=_is_generated(upper_words),
        fraction=_fraction_digits(upper_words) if type_name in ("TIME", "DATETIME", "TIMESTAMP") else None,
        text=True if type_name in _CHARACTER_TYPES and charset != "binary" else None,
        nullable=False if _is_not_null(upper_words) else None,
        metadata=_expected_decimal_metadata(type_name, upper_words),
    )


def _is_not_null(upper_words: Sequence[str]) -> bool:
    """Return whether the definition has NOT NULL."""
    outside, depth = list[str](), 0
    for word in upper_words:
        depth += PARENTHESES.get(word, 0)
        outside += [word] if not depth else []
    return ("NOT", "NULL") in pairwise(outside)


def _expected_decimal_metadata(type_name: str, upper_words: Sequence[str]) -> int | None:
    """Return the table map metadata for the numbers in parentheses after the type; None if it is not compared."""
    sizes = [word for word in _words_in_type_parentheses(upper_words) if word.isdecimal()]
    if type_name in ("DECIMAL", "DEC", "NUMERIC", "FIXED") and all(len(size) <= MAX_SIZE_DIGITS for size in sizes):
        precision, scale = map(int, (*sizes, *("10", "0")[len(sizes) :])[:2])
        return (precision or 10) << 8 | scale
    return None


def _words_in_type_parentheses(upper_words: Sequence[str]) -> Sequence[str]:
    """Return the words in the parentheses after the type."""
    if len(upper_words) < 3 or upper_words[1] != "(" or ")" not in upper_words:
        return ()
    return upper_words[2 : upper_words.index(")")]


def _fraction_digits(upper_words: Sequence[str]) -> int:
    """Return the number of fractional digits given in the parentheses after the type."""
    digits = upper_words[2] if len(upper_words) > 3 and upper_words[1] == "(" else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_SIZE_DIGITS and int(digits) <= 6 else 0


def _is_generated(upper_words: Sequence[str]) -> bool:
    """Return whether the column has `[GENERATED ALWAYS] AS (…)` or belongs to a period (`AS ROW START`)."""
    positions = [place for place, word in enumerate(upper_words) if word == "AS"]
    return any(upper_words[place + 1 : place + 2] in (["("], ["ROW"]) for place in positions)


def _column_charset(type_name: str, definition_words: Sequence[SqlWord], table_charset: str | None) -> str | None:
    """Return the character set of a column; None if there is none, or it is unknown."""
    if type_name in _BYTE_TYPES or (type_name == "LONG" and _upper_word(definition_words, 1) == "VARBINARY"):
        return "binary"
    if type_name == "JSON":
        return "utf8mb4"
    if type_name in _NATIONAL_TYPES:
        return "utf8mb3"
    if type_name not in _CHARACTER_TYPES and type_name not in ("ENUM", "SET"):
        return None
    explicit = find_charset(definition_words)
    return explicit if explicit is not None else table_charset


def find_charset(words: Sequence[SqlWord]) -> str | None:
    """Return the character set named in column attributes or table options; None if none is named or known."""
    found: str | None = None
    for index, word in enumerate(words):
        value = next((w.text for w in words[index + 1 : index + 3] if w != SqlWord("=", False)), "")
        match word.upper:
            case "CHARSET":
                found = normalize_charset_name(value)
            case "CHARACTER" | "CHAR" if _upper_word(words, index + 1) == "SET":
                value = next((w.text for w in words[index + 2 : index + 4] if w != SqlWord("=", False)), "")
                found = normalize_charset_name(value)
            case "COLLATE" if found is None:
                found = normalize_charset_name(value.partition("_")[0])
            case "ASCII" if index:
                found = "latin1"
            case "UNICODE" if index:
                found = "ucs2"
            case "BYTE" if index:
                found = "binary"
    return found


def _parse_enum_values(definition_words: Sequence[SqlWord]) -> tuple[str, ...] | None:
    """Return the texts in the parentheses after ENUM or SET."""
    if len(definition_words) < 2 or definition_words[1].upper != "(":
        return None
    texts: list[str] = []
    for word in definition_words[2:]:
        if word.upper == ")":
            return tuple(texts)
        if word.quoted:
            texts.append(word.text)
    return None


# --- Parser of CREATE TABLE ---

DeclaredColumns = tuple[DeclaredColumn, ...]


class TableDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Definition of a table.

    `key`: its primary key. `charset`: default character set of its columns; None if unknown. `versioned`: it keeps the
    history of its rows. `given`: it comes from --schema and was not changed since. `assumed`: a part of the log was
    skipped since, which may have changed it.
    """

    columns: DeclaredColumns
    key: tuple[KeyPart, ...] = ()
    charset: str | None = None
    versioned: bool = False
    given: bool = False
    assumed: bool = False


ROW_TIMES = tuple(
    DeclaredColumn(name=name, types=frozenset({ColumnType.TIMESTAMP2.value, ColumnType.LONGLONG.value}), generated=True)
    for name in ("row_start", "row_end")
)
"""Columns that WITH SYSTEM VERSIONING adds unless the statement declares them itself."""


def parse_create_table(
    ddl: ParsedDdl, first_line: int = 1, default_charset: str | None = None
) -> TableDefinition | None:
    """Parse a CREATE TABLE; None if it does not declare all columns (LIKE, SELECT).

    Args:
        first_line: the line in which the statement starts, for messages.
        default_charset: default character set of the columns if the statement names none; None if unknown.

    Raises:
        UsageError: the statement is not supported.
    """
    error, words = f"line {first_line}: CREATE TABLE", ddl.clauses.words
    upper_words, name = [word.upper for word in words], split_table_name(ddl.names[0])[1] if ddl.names else ""
    if not name or upper_words[:1] == ["."]:
        raise UsageError(f"{error} has no readable name")
    if ddl.clauses.error:
        raise UsageError(f"line {first_line}: the statement cannot be read as SQL")
    if upper_words[:1] != ["("]:
        return None
    error += f" {name}"
    items, size = split_words_in_parentheses(words)
    if not all(items if size else items[:-1]):
        raise UsageError(f"{error} has an empty definition")
    if not size:
        raise UsageError(f"{error}: a parenthesis is not closed")
    default_charset = find_charset(_select_table_option_words(words[size:])) or default_charset
    if any(item[0].upper == "LIKE" for item in items):
        return None
    columns = [item for item in items if not is_key_or_other_clause(item)]
    for item in columns:
        if len(item) < 2 or item[1].quoted or not item[1].text[:1].isalpha():
            raise UsageError(f"{error}: column {item[0].text!r} has no type")
    hints = [parse_column_definition(item[0].text, item[1:], default_charset) for item in columns]
    if not hints:
        raise UsageError(f"{error} has no columns")
    lower_names = list(map(_lower_name, hints))
    if len(set(lower_names)) < len(hints):
        raise UsageError(f"{error} defines the column {max(lower_names, key=lower_names.count)} twice")
    if ddl.clauses.has_select:
        return None
    key, is_versioned = find_declared_primary_key(items), _has_versioning(upper_words)
    if is_versioned and not any(
        item[0].upper == "PERIOD" and "SYSTEM_TIME" in [word.upper for word in item] for item in items
    ):
        hints += ROW_TIMES
    parts = () if key is None else tuple((lower_names[index], length) for index, length in key.parts)
    return TableDefinition(tuple(hints), parts, default_charset, is_versioned)


def _has_versioning(upper_words: Sequence[str]) -> bool:
    """Return whether the table or a column has WITH SYSTEM VERSIONING."""
    return any(
        word == "VERSIONING" and list(upper_words[at - 2 : at]) == ["WITH", "SYSTEM"]
        for at, word in enumerate(upper_words)
    )


def _select_table_option_words(words: Sequence[SqlWord]) -> list[SqlWord]:
    """Return the words of the table options: those outside parentheses and before partition clauses."""
    options, depth = list[SqlWord](), 0
    for word in words:
        depth += PARENTHESES.get(word.upper, 0)
        if word.upper == "PARTITION":
            break
        if depth == 0:
            options.append(word)
    return options


# --- Column definitions and their changes by ALTER TABLE ---

_ALTER_KEY_WORDS = frozenset(("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION"))
_ALTER_KEY_WORD_PAIRS = frozenset((("VECTOR", "INDEX"), ("VECTOR", "KEY"), ("PERIOD", "FOR")))
_CLAUSES_WITHOUT_EFFECT = TABLE_OPTIONS | frozenset((
    "SEQUENCE", "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR",
    "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "SECONDARY_ENGINE", "INDEX",
    "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "PASSWORD", "IETF_QUOTES", "START",
))  # fmt: skip
"""First words of clauses that leave the columns unchanged."""


class _NewColumn(msgspec.Struct, frozen=True):
    """Column that an ALTER TABLE defines.

    `old`: the column that it replaces; None if it is added. `after`: the column before it; "" for FIRST, None if the
    statement does not say.
    """

    hint: DeclaredColumn
    old: str | None = None
    after: str | None = None


class _AlterTable(msgspec.Struct):
    """Clauses of one ALTER TABLE.

    Clauses use the column names from before the statement, except after AFTER (`mysql_prepare_alter_table` of the
    servers).
    """

    before: TableDefinition
    key: tuple[KeyPart, ...]
    charset: str | None
    versioned: bool
    dropped: set[str] = msgspec.field(default_factory=set)
    renamed: dict[str, str] = msgspec.field(default_factory=dict)
    new_columns: list[_NewColumn] = msgspec.field(default_factory=list)
    converts: bool = False
    has_period: bool = False
    adds_versioning: bool = False
    drops_versioning: bool = False
    in_order_by: bool = False

    def add_clause(self, clause: Sequence[SqlWord]) -> None:
        """Add one clause. Raises UsageError: the clause is not supported."""
        clause_words = _strip_partitioning(clause)
        if not clause_words:
            return
        first, rest = clause_words[0].upper, list(clause_words[1:])
        handler = _CLAUSES.get(first)
        if handler is not None:
            handler(self, rest)
        elif first in _CLAUSES_WITHOUT_EFFECT:
            self.charset = find_charset([SqlWord("", False), *clause_words]) or self.charset
        elif self.in_order_by and (
            len(clause_words) == 1 or (len(clause_words) == 2 and clause_words[1].upper in ("ASC", "DESC"))
        ):
            return
        else:
            raise UsageError(f"unsupported ALTER TABLE clause {first or clause_words[0].text}")

    # -- clauses -------------------------------------------------------------------------------------------------------

    def _apply_add_clause(self, rest: list[SqlWord]) -> None:
        """Apply ADD: columns, a key, system versioning."""
        pair = _upper_word(rest, 0), _upper_word(rest, 1)
        if pair == ("SYSTEM", "VERSIONING"):
            self.versioned = self.adds_versioning = True
        elif pair[0] == "PRIMARY" or (pair[0] == "CONSTRAINT" and "PRIMARY" in [_upper_word(rest, i) for i in (1, 2)]):
            self.key = parse_key_parts(rest)
        elif pair in _ALTER_KEY_WORD_PAIRS:
            self.has_period = self.has_period or (pair[0] == "PERIOD" and _upper_word(rest, 2) == "SYSTEM_TIME")
        elif pair[0] not in _ALTER_KEY_WORDS and pair[0] != "CONSTRAINT":
            rest, if_missing = _split_optional_prefix(_skip_optional(rest, "COLUMN"), "IF", "NOT", "EXISTS")
            for definition in split_words_in_parentheses(rest)[0] if _upper_word(rest, 0) == "(" else [rest]:
                if not (if_missing and self._has_column(_read_lower_column_name(definition))):
                    self._add_column_definition(definition, None)

    def _apply_drop_clause(self, rest: list[SqlWord]) -> None:
        """Apply DROP: a column, a key, system versioning."""
        pair = _upper_word(rest, 0), _upper_word(rest, 1)
        if pair == ("SYSTEM", "VERSIONING"):
            self.versioned, self.drops_versioning = False, True
        elif pair == ("PRIMARY", "KEY"):
            self.key = ()
        elif pair[0] in _ALTER_KEY_WORDS or pair in _ALTER_KEY_WORD_PAIRS or pair[0] == "CONSTRAINT":
            return
        elif rest := self._words_from_existing_column(rest):
            self.dropped.add(_read_lower_column_name(rest))

    def _apply_modify_clause(self, rest: list[SqlWord]) -> None:
        """Apply MODIFY COLUMN."""
        if rest := self._words_from_existing_column(rest):
            self._add_column_definition(rest, _read_lower_column_name(rest))

    def _apply_change_clause(self, rest: list[SqlWord]) -> None:
        """Apply CHANGE COLUMN."""
        if rest := self._words_from_existing_column(rest):
            self._add_column_definition(rest[1:], _read_lower_column_name(rest))

    def _apply_rename_clause(self, rest: list[SqlWord]) -> None:
        """Apply RENAME COLUMN; RENAME of the table or of an index changes no column."""
        if _upper_word(rest, 0) == "COLUMN" and (rest := self._words_from_existing_column(rest)):
            if _upper_word(rest, 1) != "TO" or len(rest) < 3:
                raise UsageError("RENAME COLUMN has no TO")
            self.renamed[_read_lower_column_name(rest)] = rest[2].text

    def _apply_convert_clause(self, rest: list[SqlWord]) -> None:
        """Apply CONVERT TO CHARACTER SET."""
        if _upper_word(rest, 0) == "TO":
            self.charset, self.converts = find_charset(rest), True
        elif _upper_word(rest, 0) not in ("PARTITION", "TABLE"):
            raise UsageError("ALTER TABLE ... CONVERT is not supported")

    def _set_default_charset(self, rest: list[SqlWord]) -> None:
        """Apply DEFAULT CHARACTER SET."""
        self.charset = find_charset([SqlWord("DEFAULT", False), *rest]) or self.charset

    def _set_charset(self, rest: list[SqlWord]) -> None:
        """Apply CHARACTER SET."""
        self.charset = find_charset([SqlWord("CHARACTER", False), *rest])

    def _apply_order_by_clause(self, rest: list[SqlWord]) -> None:
        """Apply ORDER BY."""
        self.in_order_by = True

    # -- columns -------------------------------------------------------------------------------------------------------

    def _has_column(self, name: str) -> bool:
        """Return whether a column of this name exists or is added."""
        return any(_lower_name(c) == name for c in self.before.columns) or any(
            _lower_name(one.hint) == name for one in self.new_columns
        )

    def _words_from_existing_column(self, words: list[SqlWord]) -> list[SqlWord]:
        """Return the words after [COLUMN] [IF EXISTS]; none if IF EXISTS is there and the column did not exist.

        Raises:
            UsageError: the column did not exist before the statement, which has no IF EXISTS.
        """
        words, if_exists = _split_optional_prefix(_skip_optional(words, "COLUMN"), "IF", "EXISTS")
        name = _read_lower_column_name(words)
        if any(_lower_name(column) == name for column in self.before.columns):
            return words
        if if_exists:
            return []
        raise UsageError(f"there is no column {name}")

    def _add_column_definition(self, words: list[SqlWord], replaced_column: str | None) -> None:
        """Add a column definition."""
        words, after = _split_placement(words)
        if len(words) < 2 or not words[0].text:
            raise UsageError("ALTER TABLE has a column without a type")
        hint = parse_column_definition(words[0].text, words[1:], self.charset)
        self.new_columns.append(_NewColumn(hint, replaced_column, after))
        upper_words = [word.upper for word in words[1:]]
        if "PRIMARY" in upper_words or (
            "KEY" in upper_words and "UNIQUE" not in upper_words and "COLUMN_FORMAT" not in upper_words
        ):
            self.key = ((_lower_name(hint), 0),)

    def build_altered_table(self) -> TableDefinition:
        """Return the table after the statement. Raises UsageError: no server accepts such a table."""
        replaced = {one.old: one for one in self.new_columns if one.old is not None}
        implicit = [c for c in self.before.columns if c in ROW_TIMES]
        columns: list[DeclaredColumn] = []
        for column in self.before.columns:
            name, replacement = _lower_name(column), replaced.get(_lower_name(column))
            if name in self.dropped or column in implicit:
                continue
            if replacement is not None:
                columns += [replacement.hint] if replacement.after is None else []
            else:
                column = self._convert_column_charset(column)
                columns.append(replace(column, name=self.renamed[name]) if name in self.renamed else column)
        for added in self.new_columns:
            if added.after == "":
                columns.insert(0, added.hint)
            elif added.after is not None:
                columns.insert(_find_column_index(columns, added.after) + 1, added.hint)
            elif added.old is None:
                columns.append(added.hint)
        if not self.drops_versioning:
            columns += implicit
        if self.adds_versioning and not self.has_period and not implicit:
            columns += ROW_TIMES
        names = [_lower_name(column) for column in columns]
        if len(set(names)) != len(names):
            raise UsageError("it would have two columns with the same name")
        return TableDefinition(tuple(columns), self._build_primary_key(replaced), self.charset, self.versioned)

    def _convert_column_charset(self, column: DeclaredColumn) -> DeclaredColumn:
        """Return a column converted to the character set of CONVERT TO."""
        if not self.converts or not (column.charset not in (None, "binary") or column.text):
            return column
        return replace(column, charset=self.charset)

    def _build_primary_key(self, new_columns_by_old_name: dict[str, _NewColumn]) -> tuple[KeyPart, ...]:
        """Return the primary key with the column names after the statement.

        A key that the statement itself defines has these names already.
        """
        if self.key is not self.before.key:
            return self.key
        names = {old: _lower_name(one.hint) for old, one in new_columns_by_old_name.items()}
        names |= {old: new.lower() for old, new in self.renamed.items()}
        return tuple((names.get(name, name), size) for name, size in self.key if name not in self.dropped)


_CLAUSES: dict[str, Callable[[_AlterTable, list[SqlWord]], None]] = {
    "ADD": _AlterTable._apply_add_clause,
    "DROP": _AlterTable._apply_drop_clause,
    "MODIFY": _AlterTable._apply_modify_clause,
    "CHANGE": _AlterTable._apply_change_clause,
    "RENAME": _AlterTable._apply_rename_clause,
    "CONVERT": _AlterTable._apply_convert_clause,
    "DEFAULT": _AlterTable._set_default_charset,
    "CHARACTER": _AlterTable._set_charset,
    "CHARSET": _AlterTable._set_default_charset,
    "ORDER": _AlterTable._apply_order_by_clause,
}


def apply_alter_table(old_table: TableDefinition, clauses: Sequence[Sequence[SqlWord]]) -> TableDefinition:
    """Return the table after these clauses of ALTER TABLE.

    Raises:
        UsageError: a clause is not supported or does not fit the table.
    """
    alter_table = _AlterTable(old_table, old_table.key, old_table.charset, old_table.versioned)
    for clause in clauses:
        alter_table.add_clause(clause)
    return alter_table.build_altered_table()


def _lower_name(column: DeclaredColumn) -> str:
    """Return a column's name in lower case."""
    return (column.name or "").lower()


def _upper_word(words: Sequence[SqlWord], at: int) -> str:
    """Return a word in upper case; empty after the last one."""
    return words[at].upper if at < len(words) else ""


def _read_lower_column_name(words: Sequence[SqlWord]) -> str:
    """Return the first word, a column name, in lower case."""
    if not words:
        raise UsageError("ALTER TABLE has no column name where one is expected")
    return words[0].text.lower()


def _find_column_index(columns: Sequence[DeclaredColumn], name: str) -> int:
    """Return the index of the column with this name."""
    names = [_lower_name(column) for column in columns]
    if name not in names:
        raise UsageError(f"there is no column {name} to place another one after")
    return names.index(name)


def _skip_optional(words: list[SqlWord], optional: str) -> list[SqlWord]:
    """Return the words without an optional first word."""
    return words[1:] if _upper_word(words, 0) == optional else words


def _split_optional_prefix(words: list[SqlWord], *expected: str) -> tuple[list[SqlWord], bool]:
    """Return the words after IF [NOT] EXISTS, and whether these words were present."""
    found = [word.upper for word in words[: len(expected)]] == list(expected)
    return (words[len(expected) :] if found else words), found


def _split_placement(words: list[SqlWord]) -> tuple[list[SqlWord], str | None]:
    """Return a definition and the column that it is placed after: "" for FIRST, None if the text names no place."""
    if _upper_word(words, len(words) - 1) == "FIRST":
        return words[:-1], ""
    if len(words) > 2 and words[-2].upper == "AFTER":
        return words[:-2], words[-1].text.lower()
    return words, None


def _strip_partitioning(clause: Sequence[SqlWord]) -> Sequence[SqlWord]:
    """Return the clause up to PARTITION BY or REMOVE PARTITIONING, which follow the last clause without a comma."""
    depth = 0
    for at, word in enumerate(clause):
        depth += PARENTHESES.get(word.upper, 0)
        if depth == 0 and (word.upper, _upper_word(clause, at + 1)) in (
            ("PARTITION", "BY"),
            ("REMOVE", "PARTITIONING"),
        ):
            return clause[:at]
    return clause
