"""The description of a format: declarative schemas and pure functions, in groups of frozen structs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from construct import Construct

from binlogtool.findings import Finding
from binlogtool.formats.changes import ChangeReader
from binlogtool.formats.choosing import GtidParsers, GtidSelection
from binlogtool.formats.described import EnvelopeColumns
from binlogtool.formats.detecting import FileHead, FormatMatch
from binlogtool.formats.heads import HeaderFlipFinder
from binlogtool.formats.jsonline import JsonLine
from binlogtool.formats.judging import SetFinding, SetMember, Validator
from binlogtool.formats.layouts import Batch, Kernel, LogFileLayout
from binlogtool.formats.repair_rules import DEFAULT_REPAIR, RepairRules
from binlogtool.formats.replay_rules import ReplayRules
from binlogtool.formats.scripting import ScriptOptions, ScriptWriter
from binlogtool.formats.tables import TableSupport
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.bundling import EventGroupReader
    from binlogtool.formats.cuts import SplitFinder


class LogFileRules(msgspec.Struct, frozen=True):
    """File names of a log.

    Args:
        patterns: file name patterns (fnmatch); the content decides whether a matching file belongs to the format.
        sort_names: names -> the log's own order.
        log_directory: path of a member -> directory of its log ("" = the top); None = the directory that the file is
            in.
        name_stem: base name -> the part that all files written by one server there have in common; None = not such a
            name.
        temporary_patterns: patterns of files that a running server creates and removes again.
        mutable_header: bytes `[start, end)` at the start of a file that a server changes although they are durable;
            they are ignored when a file is told apart from another one of the same name.
    """

    patterns: tuple[str, ...]
    sort_names: Callable[[Sequence[str]], list[str]] | None = None
    log_directory: Callable[[str], str] | None = None
    name_stem: Callable[[str], str | None] = lambda _name: ""
    temporary_patterns: tuple[str, ...] = ()
    mutable_header: tuple[int, int] = (0, 0)


class ReadRules(msgspec.Struct, frozen=True):
    """How files are detected and read.

    Args:
        detect: head -> how well it fits.
        layout: head -> layout; never raises on bad bytes, but returns findings.
        schemas: all structures, by name.
        variants: names that `--format NAME:VARIANT` accepts; `layout` then gets the keyword argument `variant` (None
            =
            not given).
        levels: what can be a record (`Hints.level`), the default first.
        event_level: the level whose records are the events inside the default ones: each has the number of the record
            that holds it, its offset there (`inner`), and an object, which records of the other levels lack.
        find_ranges: layout context, GTID selection -> the parts `[start, end)` of the file, between frame boundaries,
            that can hold selected records, in order; None = the whole file.
        split_finder: layout -> the finder of split points, or None: this file is read from its start.
        carries_state: state at the end of a file also holds in the next file of the log: the split finder is a
            `CarryingSplitFinder`.
        event_groups: layout, limits -> reader of the event groups of a file, for a log in another container; raises
            `UsageError` where that is impossible. None = the records are not events of a server's binary log.
        clone_context: layout context -> an independent copy with the same knowledge; None = nothing is learned from
            records.
        compact_layout: layout -> the part of it that the validation of a set and a replay need after the file was
            read;
            it is kept for each file of a directory. None = all of it.
        find_header_flips: head of a damaged file -> the flipped bits that provably explain it (`formats.heads`).
    """

    detect: Callable[[FileHead], FormatMatch]
    layout: Callable[..., LogFileLayout]
    schemas: Mapping[str, Construct]
    variants: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    event_level: str | None = None
    find_ranges: Callable[[Any, GtidSelection], list[tuple[int, int]] | None] | None = None
    split_finder: Callable[[LogFileLayout], SplitFinder | None] | None = None
    carries_state: bool = False
    event_groups: Callable[[LogFileLayout, Limits], EventGroupReader] | None = None
    clone_context: Callable[[Any], Any] | None = None
    compact_layout: Callable[[LogFileLayout], LogFileLayout] | None = None
    find_header_flips: HeaderFlipFinder | None = None
    compiled_layouts: Callable[[], Iterable[LogFileLayout]] | None = None


class ValidationRules(msgspec.Struct, frozen=True):
    """How files and sets are validated.

    Args:
        validator: layout, `compile` (returns the fastest callable for a kernel), limits -> Validator of one file.
        validate_set: members in order -> findings about the set.
        explain_damage: layout, bytes from the damage on (bounded), file offset, finding of the engine -> the same
            finding with the format's own knowledge added (facts such as "payload intact, length wrong").
        validator_reports_sequences: the validator's result has the first and last sequence number of a file;
            otherwise
            they are decoded from the envelopes of its first and last record.
    """

    validator: Callable[[LogFileLayout, Callable[[Kernel], Kernel], Limits], Validator]
    validate_set: Callable[[Sequence[SetMember]], Sequence[SetFinding]] | None = None
    explain_damage: Callable[[LogFileLayout, memoryview, int, Finding], Finding] | None = None
    validator_reports_sequences: bool = False


class OutputRules(msgspec.Struct, frozen=True):
    """How records are decoded for people and programs.

    Args:
        types: type code -> name, all that the format knows.
        type_groups: name -> the type names that it stands for.
        decode_envelopes: layout context, batch, start, stop -> envelope columns of these records.
        decode_bodies: the same arguments and limits -> one JSON-able body per record (bytes stay bytes; the report
            wraps them); a body that cannot be decoded is a `Finding` in its place; `BodyWithFindings` = a body and
            findings about it.
        decode_extras: the same arguments -> additional JSON members of each record, or None.
        extra_names: names of these members.
        json_line: layout context -> how compiled code writes JSON lines; None = only the general writer does.
        gtid_rules: parsers of GTID selections; None = transactions are selected by their texts only.
        start_script: starts the SQL script of a log; None = the records are nothing that a server runs as statements.
        start_changes: starts the reader of row changes; None = the log has no row changes with names and types of
            columns.
    """

    types: Mapping[int, str]
    decode_envelopes: Callable[[Any, Batch, int, int], EnvelopeColumns]
    decode_bodies: Callable[[Any, Batch, int, int, Limits], list[Any]]
    decode_extras: Callable[[Any, Batch, int, int], list[Mapping[str, Any] | None]] | None = None
    extra_names: tuple[str, ...] = ()
    json_line: Callable[[Any], JsonLine | None] | None = None
    gtid_rules: GtidParsers | None = None
    start_script: Callable[[ScriptOptions], ScriptWriter] | None = None
    start_changes: Callable[[], ChangeReader] | None = None
    type_groups: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)


class Format(msgspec.Struct, frozen=True):
    """One log format: everything that the engine knows about it; its help page is `help.md` beside it.

    Args:
        repair: what a repair needs to know beyond the durable end.
        replay: what the server would do; None = nothing replays such a log.
        tables: the tables of its logs and how records become their rows; None = rows are records only.
        references: where the format is described.
        variant: the variant that the user selected.
    """

    name: str
    title: str
    files: LogFileRules
    reading: ReadRules
    validation: ValidationRules
    output: OutputRules
    repair: RepairRules = DEFAULT_REPAIR
    replay: ReplayRules | None = None
    tables: Callable[[], TableSupport] | None = None
    references: tuple[str, ...] = ()
    variant: str | None = None

    @property
    def spec(self) -> str:
        """The value of `--format` that selects exactly this description."""
        return self.name if self.variant is None else f"{self.name}:{self.variant}"
