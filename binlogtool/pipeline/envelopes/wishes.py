"""Options of change messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError

ENVELOPES = ("debezium", "maxwell", "canal")
DECIMALS = ("precise", "string", "double")
TIMES = ("adaptive_time_microseconds", "connect")
BIGINTS = ("long", "precise")


class Options(msgspec.Struct, frozen=True):
    """Options of change messages. envelope: the shape; the others are for debezium.

    source_name: logical name of the server; None = left out. tombstones: a message without a value after each delete.
    transaction_messages: one for each begin and end of a transaction. schema_messages: one for each DDL statement.
    decimals, times, unsigned_bigint: as decimal.handling.mode, time.precision.mode and bigint.unsigned.handling.mode.
    """

    envelope: str
    source_name: str | None = None
    tombstones: bool = True
    transaction_messages: bool = False
    schema_messages: bool = False
    decimals: str = "precise"
    times: str = "adaptive_time_microseconds"
    unsigned_bigint: str = "long"

    def check(self) -> None:
        """Raise UsageError if there is no such shape, or an option does not belong to it."""
        for name, known in _KNOWN.items():
            if getattr(self, name) not in known:
                raise UsageError(f"--{_option(name)} {getattr(self, name)}: choose one of {', '.join(known)}")
        if self.envelope != "debezium" and (given := changed(self)):
            raise UsageError(f"--{given} is for --envelope debezium, not for {self.envelope}")


def options_of(given: Mapping[str, Any] | None) -> Options | None:
    """Return the options of messages; None = no messages are requested.

    Raises:
        UsageError: an option of messages is given without --envelope.
    """
    if given is None:
        return None
    named = {name: value for name, value in given.items() if name != "envelope" or value}
    options = Options(**{"envelope": "debezium", **named})
    if "envelope" in named:
        return options
    if name := changed(options):
        raise UsageError(f"--{name} is for --envelope debezium")
    return None


_KNOWN = {"envelope": ENVELOPES, "decimals": DECIMALS, "times": TIMES, "unsigned_bigint": BIGINTS}


def changed(options: Options) -> str | None:
    """Return the name of a debezium option that is not at its default; None if there is none."""
    usual = Options(options.envelope)
    names = [name for name in Options.__struct_fields__ if getattr(options, name) != getattr(usual, name)]
    return _option(names[0]) if names else None


def _option(name: str) -> str:
    return "no-tombstones" if name == "tombstones" else name.replace("_", "-")
