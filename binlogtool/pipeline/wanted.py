"""Options of a conversion that do not depend on the output format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from binlogtool.log.how import How
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import OnStep
from binlogtool.pipeline.log_shaped import Lines
from binlogtool.pipeline.master import Master
from binlogtool.pipeline.writers.table_form import Shape

if TYPE_CHECKING:
    from binlogtool.pipeline.session import Session

STOP_AT_DAMAGE = Selection(on_damage="stop")


class Wanted(How, frozen=True, kw_only=True):
    """Options of a conversion, and how the logs are read.

    master, session: of Spark; None = it is started in this process when needed. manifest: where to write it as JSON.
    lines: encodes a block as lines of jsonl. max_binlog_size: bytes of a file of a log. allow_rule_breaks: see
      `BinlogJob`.
    partition_by, compression, csv_safe, target_file_size: see `TableFileOptions`. envelope: see
    `parse_envelope_options`.
    """

    selection: Selection = STOP_AT_DAMAGE
    master: str | Master | None = None
    session: Session | None = None
    manifest: str | PathLike[str] | None = None
    overwrite: bool = False
    lines: Lines | None = None
    on_step: OnStep | None = None
    max_binlog_size: int | None = None
    allow_rule_breaks: bool = False
    partition_by: Sequence[str] = ()
    compression: str | None = None
    csv_safe: bool = False
    target_file_size: int | None = None
    envelope: Mapping[str, Any] | None = None

    def shape(self, to: str, *, typed: bool = False) -> Shape:
        """Return the options of table files."""
        return Shape(to, tuple(self.partition_by), self.compression, self.csv_safe, typed, self.target_file_size)


def asked(options: Mapping[str, Any]) -> tuple[Wanted, dict[str, Any]]:
    """Split options into those of every conversion, and those of one kind of output."""
    own = set(Wanted.__struct_fields__)
    script = {name: value for name, value in options.items() if name not in own}
    return Wanted(**{name: value for name, value in options.items() if name in own}), script
