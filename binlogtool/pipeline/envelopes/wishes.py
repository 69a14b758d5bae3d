"""Options of change messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError

ENVELOPES = ("debezium", "maxwell", "canal")
DECIMAL_MODES = ("precise", "string", "double")
TIME_MODES = ("adaptive_time_microseconds", "connect")
BIGINT_MODES = ("long", "precise")


class EnvelopeOptions(msgspec.Struct, frozen=True):
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
        for name, allowed in _ALLOWED_VALUES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f"--{_option_name(name)} {getattr(self, name)}: choose one of {', '.join(allowed)}")
        if self.envelope != "debezium" and (option := find_changed_option(self)):
            raise UsageError(f"--{option} is for --envelope debezium, not for {self.envelope}")


def parse_envelope_options(values: Mapping[str, Any] | None) -> EnvelopeOptions | None:
    """Return the options of messages; None = no messages are requested.

    Raises:
        UsageError: an option of messages is given without --envelope.
    """
    if values is None:
        return None
    used_values = {name: value for name, value in values.items() if name != "envelope" or value}
    options = EnvelopeOptions(**{"envelope": "debezium", **used_values})
    if "envelope" in used_values:
        return options
    if name := find_changed_option(options):
        raise UsageError(f"--{name} is for --envelope debezium")
    return None


_ALLOWED_VALUES = {
    "envelope": ENVELOPES,
    "decimals": DECIMAL_MODES,
    "times": TIME_MODES,
    "unsigned_bigint": BIGINT_MODES,
}


def find_changed_option(options: EnvelopeOptions) -> str | None:
    """Return the name of a debezium option that is not at its default; None if there is none."""
    defaults = EnvelopeOptions(options.envelope)
    names = [name for name in EnvelopeOptions.__struct_fields__ if getattr(options, name) != getattr(defaults, name)]
    return _option_name(names[0]) if names else None


def _option_name(name: str) -> str:
    return "no-tombstones" if name == "tombstones" else name.replace("_", "-")
