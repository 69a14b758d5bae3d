"""The InnoDB redo log on disk, MariaDB 10.8 and later: its head, and one mini-transaction. All integers big-endian.

Source: MariaDB `storage/innobase/include/log0log.h`, `mtr0types.h`, `log/log0log.cc` (`log_t::header_write`),
`buf/buf0flu.cc` (`log_t::write_checkpoint`). See
docs/spec/mariadb_innodb_binlog.md#innodb-redo-log.
"""

from __future__ import annotations

from construct import Bytes, Enum, Int8ub, Int32ub, Int64ub, Struct, Tell, this

from binlogtool.formats.checksums import CRC32C
from binlogtool.formats.fields import CrcCheck, Magic
from binlogtool.formats.mariadb_innodb_binlog.redo.codes import (
    CHECKPOINT_OFFSETS,
    CHECKPOINT_SIZE,
    HEADER_SIZE,
    NONCE_SIZE,
    START_OFFSET,
    RedoLogFormat,
)
from binlogtool.formats.mariadb_innodb_binlog.redo.mtr import MtrRecords

HEADER = Struct(
    "start" / Tell,
    "format" / Enum(Int32ub, RedoLogFormat),
    "zero" / Int32ub,
    "first_lsn" / Int64ub,
    "creator" / Bytes(32),
    "encryption" / Bytes(460),
    "covered_end" / Tell,
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""File header (docs/spec/mariadb_innodb_binlog.md#redo-file-header). Its rules are checked by the reader, so that
a wrong header can still be shown.
"""

CHECKPOINT = Struct(
    "start" / Tell,
    "checkpoint_lsn" / Int64ub,
    "end_lsn" / Int64ub,
    "zero" / Bytes(44),
    "covered_end" / Tell,
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""Checkpoint block (docs/spec/mariadb_innodb_binlog.md#checkpoint-blocks)."""

HEAD = Struct(
    "header" / HEADER,
    "unused_0" / Bytes(CHECKPOINT_OFFSETS[0] - HEADER_SIZE),
    "checkpoint_1" / CHECKPOINT,
    "unused_1" / Bytes(CHECKPOINT_OFFSETS[1] - CHECKPOINT_OFFSETS[0] - CHECKPOINT_SIZE),
    "checkpoint_2" / CHECKPOINT,
    "unused_2" / Bytes(START_OFFSET - CHECKPOINT_OFFSETS[1] - CHECKPOINT_SIZE),
)
"""Everything in front of the ring: `[0, START_OFFSET)`."""

MTR = Struct(
    "start" / Tell,
    "records" / MtrRecords(),
    "covered_end" / Tell,
    "sequence_bit" / Magic(Int8ub, even_round=1, odd_round=0),
    "crc32c" / Int32ub,
    "checksum" / CrcCheck(CRC32C, this.crc32c, this.start, this.covered_end),
)
"""A mini-transaction (docs/spec/mariadb_innodb_binlog.md#mini-transactions). Bytes of one that wraps at the end
of the file must be joined first.
"""

MTR_ENCRYPTED = Struct(
    "records" / MtrRecords(encrypted=True),
    "sequence_bit" / Magic(Int8ub, even_round=1, odd_round=0),
    "nonce" / Bytes(NONCE_SIZE),
    "crc32c" / Int32ub,
)
"""The same in an encrypted log. Its CRC covers records and nonce without the byte between: the reader checks it."""
