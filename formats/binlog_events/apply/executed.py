"""Executed transactions of a server: MySQL's set (gtid_executed), MariaDB's last one per domain (gtid_pos)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from binlogtool.errors import UsageError
from binlogtool.formats.binlog_events.gtid.intervals import IntervalSet
from binlogtool.formats.binlog_events.gtid.sets import (
    GtidSet,
    format_gtid_set,
    parse_domain,
    parse_gtid_set,
    split_gtid,
)


class ExecutedGtids(msgspec.Struct):
    """Transactions that were executed.

    `sources`: numbers by `uuid` or `uuid:tag`. `domains`: domain -> server and number of the last one. MySQL
    looks a GTID up in its set. MariaDB's position covers all numbers of a domain up to the last one, of
    whichever server (`rpl_slave_state`, `rpl_binlog_state::append_pos`).
    """

    sources: dict[str, IntervalSet] = msgspec.field(default_factory=dict)
    domains: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)

    def __contains__(self, gtid: str) -> bool:
        source, number = split_gtid(gtid)
        domain = parse_domain(source)
        if domain is None:
            return source in self.sources and number in self.sources[source]
        return domain in self.domains and number <= self.domains[domain][1]

    def add(self, gtid: str) -> None:
        """Add one transaction; in a domain the last one added counts, even if its number is lower."""
        source, number = split_gtid(gtid)
        domain = parse_domain(source)
        if domain is None:
            self.sources.setdefault(source, IntervalSet()).add(number, number + 1)
        else:
            self.domains[domain] = int(source.partition("-")[2]), number

    @property
    def text(self) -> str:
        """The text in the server's form: gtid_executed, or gtid_binlog_pos."""
        positions = [f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.domains.items())]
        set_text = format_gtid_set(GtidSet(self.sources)) if self.sources else ""
        return ",".join([*positions, *([set_text] if set_text else [])])

    def copy(self) -> ExecutedGtids:
        """Return an independent copy."""
        return ExecutedGtids({source: IntervalSet(own) for source, own in self.sources.items()}, dict(self.domains))


def parse_executed(text: str) -> ExecutedGtids:
    """Parse what a server reports as executed; if a MariaDB domain is named twice, the last one counts.

    Raises:
        UsageError: the text is not a set of GTIDs.
    """
    result = ExecutedGtids()
    for item in text.replace("\n", ",").split(","):
        item = item.strip()
        if ":" in item:
            _add_set(result.sources, parse_gtid_set(item))
        elif item:
            _add_position(result, item)
    return result


def _add_set(sources: dict[str, IntervalSet], gtids: GtidSet) -> None:
    """Add all GTIDs of a set."""
    for source, numbers in gtids.sources.items():
        intervals = sources.setdefault(source, IntervalSet())
        for start, stop in numbers:
            intervals.add(start, stop)


def _add_position(executed: ExecutedGtids, item: str) -> None:
    """Add one GTID of MariaDB."""
    parsed = parse_gtid_set(item)
    numbers = [(source, own.highest) for source, own in parsed.sources.items() if own.count() == 1]
    if parsed.domains or len(numbers) != 1:
        raise UsageError(f"position {item!r}: a transaction of MariaDB is written 0-1-42")
    executed.add("-".join((numbers[0][0], str(numbers[0][1]))))


def read_listed_gtids(body: Any) -> ExecutedGtids:
    """Return the transactions that a decoded PREVIOUS_GTIDS or GTID_LIST event lists."""
    text = body.get("gtids", "") if isinstance(body, Mapping) else ""
    return parse_executed(text) if isinstance(text, str) else ExecutedGtids()
