"""The description that `binlogtool` finds by the entry point."""

from binlogtool.findings import make_finding
from binlogtool.format_api.format import Format, FormatMatch, LogFileRules, OutputRules, ReadRules, ValidationRules
from binlogtool.format_api.layout import CRC32, FrameLevel, LogFileLayout
from my_log.meaning import bodies, describe
from my_log.recovery import Judge
from my_log.replay import REPLAY
from my_log.schema import FIXED, HEADER, MAGIC, MAX_LENGTH, RECORD, TYPES
from my_log.tables import TABLES

FRAME = FrameLevel(
    schema=RECORD, name="record", columns=("type", "seq", "crc32", "payload_start", "payload_end"),
    sync=rb"(?s)...\x00....[\x01\x02]", min_size=8 + FIXED, max_size=8 + MAX_LENGTH,
    checksum=CRC32, stored="crc32", covered=("payload_start", "payload_end"),
)  # fmt: skip


def detect(head):
    return FormatMatch(100 * head.data.startswith(MAGIC), "the magic")


def layout(head, limits):
    wrong = () if head.data.startswith(MAGIC) else (make_finding("bad-magic", 0, len(MAGIC), "the magic is wrong"),)
    return LogFileLayout("version 1", len(MAGIC), FRAME, header=HEADER, findings=wrong)


FORMAT = Format(
    name="my-log", title="log of an application", references=("the application's own source",),
    files=LogFileRules(patterns=("*.mylog",)), validation=ValidationRules(validator=Judge),
    reading=ReadRules(detect=detect, layout=layout, schemas={"header": HEADER, "record": RECORD}),
    output=OutputRules(TYPES, describe, bodies), replay=REPLAY, tables=TABLES,
)  # fmt: skip
