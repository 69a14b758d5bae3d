"""State that the validators of the files of one log pass on to each other."""

from __future__ import annotations

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.groups.commit_marks import CommitMarks
from binlogtool.formats.mariadb_innodb_binlog.groups.live import Live
from binlogtool.formats.mariadb_innodb_binlog.judge.states import Replay
from binlogtool.formats.mariadb_innodb_binlog.records.records import Place, Prepared, Xid


class LogFold(msgspec.Struct):
    """What is carried from file to file of one log.

    Attributes:
        last_file: of the file validated last.
        last_file_intact: that file had no damage.
        commit_span: file number, offset and end of the last commit.
        commit_continues: the last commit was incomplete at the end of its file.
    """

    number: int | None = None
    whole: bool = False
    replay: Replay = msgspec.field(default_factory=Replay)
    live: Live = msgspec.field(default_factory=Live)
    pending: dict[Xid, Prepared] = msgspec.field(default_factory=dict)
    span: tuple[int, int, int] = (0, 0, 0)
    goes_on: bool = False
    marks: CommitMarks = msgspec.field(default_factory=CommitMarks)

    def inside_commit(self, place: Place) -> bool:
        """Check if the record at this position is between the chunks of the last commit."""
        number, first, stop = self.span
        if number == place.file_no:
            return first < place.offset < stop
        return self.goes_on and number + 1 == place.file_no


class Facts(msgspec.Struct, frozen=True):
    """What `validate_log_set` needs of a file.

    Attributes:
        unreached: number and bytes of out-of-band records that no COMMIT record refers to so far.
        pending: number of prepared XA transactions.
    """

    unreached: tuple[int, int] = (0, 0)
    pending: int = 0
    damaged: bool = False
