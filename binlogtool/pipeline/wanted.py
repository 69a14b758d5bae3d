"""What is wanted of a conversion, whatever it makes."""

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
    """What is wanted, and how the logs are read. master, session: of Spark; None = it is embedded
    where it is needed. manifest: where to write it as JSON.

    lines: turns a block into its lines, of jsonl. max_binlog_size: bytes of a file of a log; allow_rule_breaks: see
    `BinlogJob`. partition_by, compression, csv_safe, target_file_size: see `Shape`. envelope: see `options_of`.
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
        """How files of tables shall look."""
        return Shape(to, tuple(self.partition_by), self.compression, self.csv_safe, typed, self.target_file_size)


def asked(options: Mapping[str, Any]) -> tuple[Wanted, dict[str, Any]]:
    """What is wanted, and the options that belong to one kind of output alone."""
    own = set(Wanted.__struct_fields__)
    script = {name: value for name, value in options.items() if name not in own}
    return Wanted(**{name: value for name, value in options.items() if name in own}), script
