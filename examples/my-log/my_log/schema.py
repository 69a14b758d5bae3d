"""The log on disk, in file order. length: of all behind the checksum; time: microseconds since 1970."""

from construct import Bytes, Check, Const, Int8ul, Int32ul, Int64ul, Struct, Tell, this

from binlogtool.format_api.layout import CRC32
from binlogtool.format_api.schema_fields import CrcCheck

MAGIC = b"MYLOG\x00\x01\x00"
FIXED, MAX_LENGTH = 19, (1 << 24) - 1
TYPES = {1: "PUT", 2: "DELETE"}

HEADER = Struct("magic" / Const(MAGIC))
RECORD = Struct(
    "length" / Int32ul,
    Check(this.length >= FIXED),
    Check(this.length <= MAX_LENGTH),
    "crc32" / Int32ul,
    "payload_start" / Tell,
    "type" / Int8ul,
    "seq" / Int64ul,
    "time" / Int64ul,
    "table_length" / Int8ul,
    "key_length" / Int8ul,
    Check(this.length >= this.table_length + this.key_length + FIXED),
    "table" / Bytes(this.table_length),
    "key" / Bytes(this.key_length),
    "data" / Bytes(this.length - this.table_length - this.key_length - FIXED),
    "payload_end" / Tell,
    "checksum" / CrcCheck(CRC32, stored=this.crc32, start=this.payload_start, end=this.payload_end),
)
