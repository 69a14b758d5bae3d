"""The table binary log of Manticore Search and of its ancestor Sphinx."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from binlogtool.format_api.format import (
    EngineLock,
    FileFix,
    Format,
    LogFileRules,
    OutputRules,
    ReadRules,
    RepairRules,
    ValidationRules,
)
from binlogtool.format_api.layout import RangeReader
from binlogtool.format_api.lazy_import import LazyMapping, LazyRef
from binlogtool.format_api.replay_rules import ReplayRules
from binlogtool.format_api.row_output_interfaces import TableSupport
from binlogtool.formats.manticore import FILE_PATTERNS, schema
from binlogtool.formats.manticore.decode import (
    LOG_NAME,
    MAX_META_SIZE,
    TYPE_NAMES,
    DocumentTableReader,
    decode_bodies,
    describe_records,
    detect,
    fork_context,
    get_log_stem,
    make_record_text,
    read_layout,
)
from binlogtool.formats.manticore.payload_kernels import build_zint
from binlogtool.formats.manticore.validate import create_validator
from binlogtool.formats.manticore.validate_directory import is_link_proven, sort_names, validate_set

META_NAME = "binlog.meta"
_OLD_NUMBER_WIDTH = 3
_MAX_LISTED = 5
"""Maximum number of missing files whose names are listed."""
_MAGIC_META, _MAGIC_LOG = b"SPLI", b"SPBL"


def rebuild_meta(names: Sequence[str], read: Callable[[str], RangeReader]) -> Iterator[FileFix]:
    """Rebuild binlog.meta: remove missing files from the list; if it is missing or unreadable, list the log files."""
    logs = {int(match[1]): name for name in names if (match := LOG_NAME.fullmatch(name))}
    data = read(META_NAME)(0, MAX_META_SIZE + 1) if META_NAME in names else b""
    parsed = _parse_meta(data)
    if META_NAME not in names and not any(_has_records(name, read) for name in logs.values()):
        return
    if parsed is None and not logs:
        return
    if parsed is None:
        heads = [head for name in logs.values() if len(head := read(name)(0, 8)) == 8]
        versions = {struct.unpack_from("<I", head, 4)[0] for head in heads if head.startswith(_MAGIC_LOG)}
        version = versions.pop() if len(versions) == 1 and len(heads) > 0 else None
        if version is not None and len(data) <= MAX_META_SIZE:
            content = _build_meta(version, _choose_setting(version, logs), sorted(logs))
            model_file = None if META_NAME in names else logs[max(logs)]
            yield FileFix(META_NAME, content, "rebuilt from the log files", model_file)
        return
    version, setting, numbers = parsed
    present = [number for number in numbers if number in logs]
    missing = [number for number in numbers if number not in logs]
    if missing:
        yield FileFix(
            META_NAME, _build_meta(version, setting, present), _describe_removal(version, setting, missing, numbers)
        )


def _describe_removal(version: int, setting: int, missing: Sequence[int], numbers: Sequence[int]) -> str:
    """Describe the consequences of removing files from the list."""
    digits = setting if version >= schema.NEW_FRAME_VERSION else _OLD_NUMBER_WIDTH
    names = ", ".join(f"binlog.{number:0{digits}d}" for number in missing[:_MAX_LISTED])
    names += f" and {len(missing) - _MAX_LISTED:,} more" if len(missing) > _MAX_LISTED else ""
    text = (
        f"without {len(missing)} listed {'file' if len(missing) == 1 else 'files'} that "
        f"{'is' if len(missing) == 1 else 'are'}"
    )
    text += f" missing ({names}): its" if len(missing) == 1 else f" missing ({names}): their"
    text += " transactions are lost, unless their table has saved them"
    is_newest = missing == [max(numbers)]
    return text + (
        "; this is the newest file: if the server died before creating it, no transaction is missing"
        if is_newest
        else ""
    )


def _has_records(name: str, read: Callable[[str], RangeReader]) -> bool:
    """Return whether a log file has bytes after its head. Without a list, the server would overwrite the file."""
    return len(read(name)(0, schema.HEADER_SIZE + 1)) > schema.HEADER_SIZE


def _parse_meta(data: bytes) -> tuple[int, int, list[int]] | None:
    """Parse (version, digits, file numbers) of a complete meta file; None if it is damaged."""
    if len(data) < 10 or len(data) > MAX_META_SIZE or not data.startswith(_MAGIC_META):
        return None
    version, setting = struct.unpack_from("<IB", data, 4)
    values, value, is_open = [], 0, False
    for byte in data[9:]:
        value, is_open = value << 7 | byte & 127, byte > 127
        if not is_open:
            values.append(value)
            value = 0
    is_complete = not is_open and bool(values) and values[0] == len(values) - 1
    is_supported = schema.FIRST_VERSION <= version <= schema.LAST_VERSION
    return (version, setting, values[1:]) if is_complete and is_supported else None


def _choose_setting(version: int, logs: dict[int, str]) -> int:
    """Return the setting for binlog.meta: from version 15 on, the digits of file names; before, 1 (64-bit ids)."""
    return min(len(name.rpartition(".")[2]) for name in logs.values()) if version >= schema.NEW_FRAME_VERSION else 1


def _build_meta(version: int, setting: int, numbers: Sequence[int]) -> bytes:
    head = struct.pack("<4sIB", _MAGIC_META, version, setting)
    return head + b"".join(build_zint(number) for number in (len(numbers), *numbers))


REPAIR = RepairRules(
    locks=(EngineLock("binlog.lock", "record"),),
    fix_files=rebuild_meta,
    gaps="transactions may be missing in the middle: the server accepts that with the warning 'unexpected tid', but "
    "the contents of documents that the missing transactions changed may be wrong",
)


FORMAT = Format(
    name="manticore",
    title="Manticore Search and Sphinx binary log",
    files=LogFileRules(
        patterns=FILE_PATTERNS,
        name_stem=get_log_stem,
        log_patterns=("binlog.meta", "binlog.[0-9]*"),
        sort_names=sort_names,
        temporary_patterns=("binlog.meta.new",),
    ),
    reading=ReadRules(
        detect=detect,
        layout=read_layout,
        find_header_bit_flips=LazyRef("manticore.explain_damage:find_header_bit_flips"),
        reads_siblings=True,
        schemas={
            "meta": schema.META,
            "header": schema.LOG_HEADER,
            "txn": schema.FRAME,
            "payload": schema.PAYLOAD,
            **{
                f"txn-v{version}": schema.create_v2_to_v14_frame_schema(version)
                for version in range(schema.FIRST_VERSION, schema.NEW_FRAME_VERSION)
            },
        },
        clone_context=fork_context,
        split_finder=LazyRef("manticore.decode:make_split_point_finder"),
        compiled_layouts=LazyRef("manticore.decode:list_compiled_layouts"),
    ),
    validation=ValidationRules(
        validator=create_validator,
        validate_set=validate_set,
        is_link_proven=is_link_proven,
        explain_damage=LazyRef("manticore.explain_damage:explain_damage"),
        is_closed_end_proven=lambda facts: facts.closed,
    ),
    output=OutputRules(
        types=TYPE_NAMES,
        decode_envelopes=describe_records,
        decode_bodies=decode_bodies,
        json_line=LazyRef("manticore.json_line_kernels:create_json_line"),
        start_record_text=lambda: make_record_text,
        sequence_name="TID",
    ),
    tables=TableSupport(DocumentTableReader, operations=True),
    repair=REPAIR,
    replay=ReplayRules(
        begin=LazyRef("manticore.replay.replayer:ManticoreReplayer"),
        reasons=LazyMapping("manticore.replay.replayer:REASONS"),
        effects=LazyRef("manticore.replay.replayer:ManticoreEffectReader"),
        patch=LazyRef("manticore.replay.replayer:apply_patch"),
        parse_state=LazyRef("manticore.replay.replayer:read_saved_tid"),
        starts_without_files=True,
        force="like --replay-flags=ignore-all-errors (up to version 13: ignore-open-errors and accept-desc-timestamp, "
        "all that is known there): after an error the rest of that file is dropped, missing files are skipped",
    ),
    references=(
        "Manticore Search, src/binlog.cpp, src/binlog.h and doc/binary-logging.md, commit e790cb571 (2026-08-22)",
        "Manticore Search 27.1.0 and 6.3.8, the same files at these releases",
        "Sphinx 2.2.11, src/sphinxrt.cpp (Debian package sphinxsearch)",
    ),
)
