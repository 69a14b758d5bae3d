"""State that the validators of the files of one log pass on to each other."""

from __future__ import annotations

import msgspec

from binlogtool.formats.mariadb_innodb_binlog.groups.commit_marks import CommitMarkChecker
from binlogtool.formats.mariadb_innodb_binlog.groups.live import UnreferencedOobTracker
from binlogtool.formats.mariadb_innodb_binlog.judge.states import GtidStateTracker
from binlogtool.formats.mariadb_innodb_binlog.records.records import IbbPosition, IbbXaId, XaPrepareRecord


class LogValidationState(msgspec.Struct):
    """What is carried from file to file of one log.

    Attributes:
        last_file: of the file validated last.
        last_file_intact: that file had no damage.
        commit_span: file number, offset and end of the last commit.
        commit_continues: the last commit was incomplete at the end of its file.
    """

    last_file: int | None = None
    last_file_intact: bool = False
    gtid_state: GtidStateTracker = msgspec.field(default_factory=GtidStateTracker)
    oob_tracker: UnreferencedOobTracker = msgspec.field(default_factory=UnreferencedOobTracker)
    pending: dict[IbbXaId, XaPrepareRecord] = msgspec.field(default_factory=dict)
    commit_span: tuple[int, int, int] = (0, 0, 0)
    commit_continues: bool = False
    marks: CommitMarkChecker = msgspec.field(default_factory=CommitMarkChecker)

    def is_inside_commit(self, position: IbbPosition) -> bool:
        """Check if the record at this position is between the chunks of the last commit."""
        number, first, stop = self.commit_span
        if number == position.file_no:
            return first < position.offset < stop
        return self.commit_continues and number + 1 == position.file_no


class IbbFileFacts(msgspec.Struct, frozen=True):
    """What `validate_log_set` needs of a file.

    Attributes:
        unreached: number and bytes of out-of-band records that no COMMIT record refers to so far.
        pending: number of prepared XA transactions.
    """

    unreached: tuple[int, int] = (0, 0)
    pending: int = 0
    damaged: bool = False
