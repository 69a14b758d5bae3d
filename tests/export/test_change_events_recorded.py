"""Every message of `convert --envelope` is that of the real connector, but for what is named here as the connector's.

The record is made by `tests.export.connectors`: Debezium 3.0.8 (MariaDB: 2.6.2), Maxwell 1.22.6, Canal 1.1.7, each on
MySQL 9.7 and MariaDB 10.11.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.export.connectors.recorder import RECORD
from tests.export.messages import convert

Message = dict[str, Any]
CASES = sorted(
    "/".join(path.parts[-4:-1]) for name in ("canal", "debezium", "maxwell") for path in RECORD.glob(f"{name}/*/*/bin*")
)
LOADS = ("keys", "more", "transactions", "workload")
ODD = ("keys", "more", "odd", "transactions", "workload")
"""Debezium's: also unusual keys, defaults, names and statements about tables."""
COUNTS = {
    "canal": {"mariadb": [74, 45, 37, 49], "mysql-9": [77, 45, 35, 49]},
    "debezium": {"mariadb": [135, 85, 162, 58, 86], "mysql-9": [131, 69, 142, 54, 77]},
    "maxwell": {"mariadb": [60, 40, 27, 37], "mysql-9": [63, 40, 26, 37]},
}
"""Messages of these."""


def _loads(connector: str) -> tuple[str, ...]:
    return ODD if connector == "debezium" else LOADS


def test_the_record_is_whole() -> None:
    assert [
        f"{connector}/{server}/{load}"
        for connector in COUNTS
        for server in ("mariadb", "mysql-9")
        for load in _loads(connector)
    ] == CASES


@pytest.mark.parametrize("case", CASES)
def test_every_message_is_the_one_of_the_connector(case: str, tmp_path: Path) -> None:
    connector, server, load = case.split("/")
    own, real = _own(case, tmp_path), _real(case)
    for one in own:
        _OWN[connector](one, server)
    for one in real:
        _REAL[connector](one, server)
    assert len(own) == len(real) == COUNTS[connector][server][_loads(connector).index(load)]
    found = [
        (number, path, mine, other)
        for number, pair in enumerate(zip(own, real, strict=True))
        for path, mine, other in _differences(*pair)
        if not any(_is_theirs(rule, case, path, mine, other, pair[1]) for rule in THEIRS)
    ]
    assert not found


def _differences(mine: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(mine, dict) and isinstance(other, dict):
        for name in {**mine, **other}:
            yield from _differences(mine.get(name, MISSING), other.get(name, MISSING), f"{path}.{name}")
    elif isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        for one, another in zip(mine, other, strict=True):
            yield from _differences(one, another, f"{path}[]")
    elif type(mine) is not type(other) or mine != other:
        yield path, mine, other


class Theirs(msgspec.Struct, frozen=True):
    """A difference that is the connector's. case, path: patterns. fits: is it that one? of: some of the message."""

    case: str
    path: str
    fits: Callable[[Any, Any], bool]
    of: Callable[[Message], bool] = lambda _: True


def _is_theirs(rule: Theirs, case: str, path: str, mine: Any, other: Any, message: Message) -> bool:
    if not re.fullmatch(rule.case, case) or not re.fullmatch(rule.path, path):
        return False
    return rule.of(message) and rule.fits(mine, other)


MISSING = "(it is not there)"
_DEFAULT_DAY = (date(2020, 1, 1) - date(1970, 1, 1)).days


def _own(case: str, folder: Path) -> list[Message]:
    connector = case.split("/")[0]
    (folder / "bin.000001").write_bytes(gzip.decompress((RECORD / case / "bin.000001.gz").read_bytes()))
    switches = ("--provide-transaction-metadata", "--include-query", "--schema-messages")
    more = ("--source-name", "shop1", *switches) if connector == "debezium" else ()
    output = folder / "out.jsonl"
    done = convert(output, folder / "bin.000001", *more, "--exclude-object", "zz.*", envelope=connector)
    assert done.code == 0, done.text + done.err
    return _chosen([json.loads(line) for line in output.read_text().splitlines()])


def _real(case: str) -> list[Message]:
    lines = gzip.decompress((RECORD / case / "messages.jsonl.gz").read_bytes()).splitlines()
    return _chosen([json.loads(line) for line in lines])


def _chosen(messages: list[Message]) -> list[Message]:
    """Up to the database whose table is the mark of the end, without what a running connector says of itself."""
    made = list[Message]()
    for one in messages:
        value = one.get("value") or {}
        if "zz" in (one.get("database"), value.get("databaseName")):
            if value and made and (made[-1]["value"] or {}).get("status") == "BEGIN":
                made.pop()  # of MariaDB's transaction with the statement
            break
        if one.get("type") == "UPDATE" and one["data"] is None and not one["sql"]:
            continue  # a heartbeat of Canal
        if value.get("ddl", "").startswith("ROLLBACK TO"):
            continue  # Debezium takes a savepoint of MariaDB for a statement about tables
        made.append(one)
    return made


# -- what is theirs ----------------------------------------------------------------------------------------------------


def _statement(one: Message) -> bool:
    return "ddl" in one["value"] or one["value"].get("op") == "t"


def _are_the_same_names(mine: Any, other: Any) -> bool:
    return bool(mine) and sorted(mine.split(",")) == sorted(other.split(","))


def _is_beyond_a_day(mine: Any, other: Any) -> bool:
    return mine.startswith("-") or int(mine.split(":")[0]) >= 24


THEIRS = (
    # Debezium: BOOLEAN is known from its statement, where SHOW CREATE TABLE has tinyint(1)
    Theirs("debezium/.*", r"\.value\.(before|after)\.bo", lambda mine, other: other is bool(mine)),
    # Debezium: the number of the row and the statement before are still there when a statement about tables comes
    Theirs("debezium/.*", r"\.value\.source\.row", lambda mine, _: mine == 0, _statement),
    Theirs("debezium/.*/more", r"\.value\.source\.query", lambda mine, _: mine is None, _statement),
    # Debezium: the name of a view, which has no rows; nothing of a statement about an index
    Theirs("debezium/.*", r"\.value\.source\.table", lambda mine, other: mine is None and other in ("v", "")),
    # Debezium: of a statement about several tables their names come in the order of a hash
    Theirs("debezium/.*/odd", r"\.value\.source\.table", _are_the_same_names, _statement),
    # Debezium: its JSON has the default of the column where the value is NULL, or a date that there is not
    Theirs("debezium/.*/odd", r"\.value\.after\.zed", lambda mine, other: (mine, other) == (None, "zz")),
    Theirs("debezium/.*/odd", r"\.value\.after\.d", lambda mine, other: (mine, other) == (0, _DEFAULT_DAY)),
    # Debezium 2.6.2: at the beginning of a transaction of MariaDB the time of the event before
    Theirs(
        "debezium/mariadb/.*", r"\.value\.ts_ms", lambda mine, other: 0 <= mine - other <= 2000,
        lambda one: one["value"].get("status") == "BEGIN",
    ),
    # Maxwell: java.sql.Time ends at 24 hours
    Theirs("maxwell/.*/workload", r"\.data\.t[06]?", _is_beyond_a_day),
    # Canal: of decimals zeros at the end are lost
    Theirs("canal/.*", r"\.data\[\]\.(de|n)", lambda mine, other: Decimal(mine) == Decimal(other) and mine > other),
    # Canal: all text is taken for UTF-8, MariaDB's JSON for bytes
    Theirs("canal/.*", r"\.data\[\]\.(cl|a)", lambda mine, other: mine == "ä" and other == "\ufffd"),
    Theirs("canal/mariadb/.*", r"\.data\[\]\.j", lambda mine, other: mine == other.encode("latin-1").decode()),
    # Canal: types as the statement spells them, where the log has what they stand for
    Theirs("canal/mariadb/.*", r"\.mysqlType\.j", lambda mine, other: (mine, other) == ("longtext", "json")),
    Theirs("canal/mariadb/.*", r"\.sqlType\.j", lambda mine, other: (mine, other) == (2005, 2004)),
    Theirs("canal/.*", r"\.mysqlType\.bo", lambda mine, other: (mine, other) == ("tinyint", "boolean")),
)  # fmt: skip


# what is not compared


def _debezium_own(one: Message, _: str) -> None:
    value = one["value"]
    one.setdefault("headers", {})
    if value is None:
        return
    if "source" in value:
        _without(value["source"], "version", "connector")
    _no_order(value)


def _debezium_real(one: Message, server: str) -> None:
    """Its clock; 2.6.2's name of MariaDB; numbers and statements that it keeps of an earlier event."""
    value = one["value"]
    del one["topic"]
    if value is None:
        return
    if "source" in value:
        _without(value, "ts_ms", "ts_us", "ts_ns")
        _without(value["source"], "version", "connector")
    _no_order(value)


def _no_order(value: Message) -> None:
    """Its counts of tables come in the order of a hash."""
    if value.get("data_collections"):
        value["data_collections"].sort(key=lambda one: one["data_collection"])


def _maxwell_own(one: Message, server: str) -> None:
    if server == "mariadb":
        _without(one, "gtid", "query")


def _maxwell_real(one: Message, server: str) -> None:
    """MariaDB gives replicas as old as 1.22.6 no GTIDs and statements; no log says a database's character set."""
    _without(one, "charset")
    if server == "mariadb":
        assert one.pop("thread_id", 0) == 0


def _canal_own(one: Message, _: str) -> None:
    one["mysqlType"] = _lower(one["mysqlType"])


def _canal_real(one: Message, _: str) -> None:
    """Its clock and counter; it writes types as the statement has them."""
    _without(one, "id", "ts")
    one["mysqlType"] = _lower(one["mysqlType"])


def _lower(types: Message | None) -> Message | None:
    return None if types is None else {name: text.lower() for name, text in types.items()}


def _without(one: Message, *names: str) -> None:
    for name in names:
        one.pop(name, None)


_OWN: dict[str, Callable[[Message, str], None]] = {
    "debezium": _debezium_own, "maxwell": _maxwell_own, "canal": _canal_own,
}  # fmt: skip
_REAL: dict[str, Callable[[Message, str], None]] = {
    "debezium": _debezium_real, "maxwell": _maxwell_real, "canal": _canal_real,
}  # fmt: skip
