"""Tarantool journal files on disk: the schemas in file order.

One container for .xlog, .snap, .vylog, .run and .index. Source: Tarantool `src/box/xlog.c`, `src/box/xrow.c`,
`src/box/iproto_constants.h`, `src/box/vy_log.c`, `src/box/vy_run.c`; `docs/spec/tarantool.md`.
"""

from __future__ import annotations

from construct import Bytes, Check, If, Int32ub, Struct, Switch, Tell, this

from binlogtool.formats.checksums import CRC32C_RAW
from binlogtool.formats.fields import CompressedSchema, CrcCheck, Magic, NestedSchema
from binlogtool.formats.tarantool.codes import FIXHEADER_SIZE, MAX_PAYLOAD_SIZE, PLAIN_MAGIC, ZSTD_MAGIC
from binlogtool.formats.tarantool.layout.compression import unpack_zstd
from binlogtool.formats.tarantool.layout.header import TextHeader
from binlogtool.formats.tarantool.msgpack.messages import MpFiller, MpUint32
from binlogtool.formats.tarantool.rows.rows import RowConstruct, RowsConstruct

HEADER = Struct("header" / TextHeader())

ROW = RowConstruct()

PAYLOAD = Struct("rows" / RowsConstruct())

BLOCK = Struct(
    "start" / Tell,
    "magic" / Magic(Int32ub, plain=PLAIN_MAGIC, zstd=ZSTD_MAGIC),
    "header"
    / Struct(
        "length" / MpUint32(),
        "crc32p" / MpUint32(),
        "crc32c" / MpUint32(),
        "end" / Tell,
        "padding" / If(this.end < this._.start + FIXHEADER_SIZE, MpFiller()),
    ),
    "payload_start" / Tell,
    Check(this.payload_start == this.start + FIXHEADER_SIZE),
    Check(this.header.length <= MAX_PAYLOAD_SIZE),
    "payload"
    / NestedSchema(
        Bytes(this.header.length),
        Switch(this.magic, {PLAIN_MAGIC: PAYLOAD, ZSTD_MAGIC: CompressedSchema(PAYLOAD, unpack_zstd, "zstd")}),
    ),
    "payload_end" / Tell,
    "checksum" / CrcCheck(CRC32C_RAW, this.header.crc32c, this.payload_start, this.payload_end),
)
