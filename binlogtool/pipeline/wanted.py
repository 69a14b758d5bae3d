"""Options of a conversion that do not depend on the output format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from binlogtool.log.how import ReadOptions
from binlogtool.log.select import Selection
from binlogtool.pipeline.account import ProgressCallback
from binlogtool.pipeline.log_shaped import LineEncoder
from binlogtool.pipeline.master import SparkMaster
from binlogtool.pipeline.writers.table_form import TableFileOptions

if TYPE_CHECKING:
    from binlogtool.pipeline.session import SparkJobSession

STOP_AT_DAMAGE = Selection(on_damage="stop")


class ConvertOptions(ReadOptions, frozen=True, kw_only=True):
    """Options of a conversion, and how the logs are read.

    master, session: of Spark; None = it is started in this process when needed. manifest: where to write it as JSON.
    lines: encodes a block as lines of jsonl. max_binlog_size: bytes of a file of a log. allow_rule_breaks: see
      `BinlogJob`.
    partition_by, compression, csv_safe, target_file_size: see `TableFileOptions`. envelope: see
    `parse_envelope_options`.
    """

    selection: Selection = STOP_AT_DAMAGE
    master: str | SparkMaster | None = None
    session: SparkJobSession | None = None
    manifest: str | PathLike[str] | None = None
    overwrite: bool = False
    lines: LineEncoder | None = None
    on_step: ProgressCallback | None = None
    max_binlog_size: int | None = None
    allow_rule_breaks: bool = False
    partition_by: Sequence[str] = ()
    compression: str | None = None
    csv_safe: bool = False
    target_file_size: int | None = None
    envelope: Mapping[str, Any] | None = None

    def table_options(self, to: str, *, typed: bool = False) -> TableFileOptions:
        """Return the options of table files."""
        return TableFileOptions(
            to, tuple(self.partition_by), self.compression, self.csv_safe, typed, self.target_file_size
        )


def split_options(options: Mapping[str, Any]) -> tuple[ConvertOptions, dict[str, Any]]:
    """Split options into those of every conversion, and those of one kind of output."""
    common_names = set(ConvertOptions.__struct_fields__)
    kind_options = {name: value for name, value in options.items() if name not in common_names}
    return ConvertOptions(**{name: value for name, value in options.items() if name in common_names}), kind_options
