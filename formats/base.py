"""What a format tells the engine: one frozen description, made of declarative schemas and pure functions, in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from construct import Construct

from binlogtool.findings import Finding
from binlogtool.formats.changes import Changes
from binlogtool.formats.choosing import GtidDemand, GtidRules
from binlogtool.formats.described import Described
from binlogtool.formats.detecting import Head, Match
from binlogtool.formats.heads import Heads
from binlogtool.formats.jsonline import JsonLine
from binlogtool.formats.judging import Judge, Member, SetFinding
from binlogtool.formats.layouts import Batch, Kernel, Layout
from binlogtool.formats.repair_rules import PLAIN, Repair
from binlogtool.formats.replay_rules import Replay
from binlogtool.formats.scripting import Script, Wording
from binlogtool.formats.tables import Tables
from binlogtool.limits import Limits

if TYPE_CHECKING:
    from binlogtool.formats.bundling import Bundler
    from binlogtool.formats.cuts import Cutter


class Files(msgspec.Struct, frozen=True):
    """The files of a log.

    patterns: file-name patterns (fnmatch) that they can have; what is in them decides whether they are some.
    order: names -> the log's own order. home: the directory of the log that a member's path belongs to ("" = the top);
        None = the directory that the file is in. stem: base name -> what the names of all files that one server writes
        there have in common; None = it gives no such name.
    passing: patterns of files that a running server makes and takes away again.
    rewritten: bytes `[start, end)` at the head of a file that a server changes although they are durable; a file is
        told from another one of its name without them.
    """

    patterns: tuple[str, ...]
    order: Callable[[Sequence[str]], list[str]] | None = None
    home: Callable[[str], str] | None = None
    stem: Callable[[str], str | None] = lambda _name: ""
    passing: tuple[str, ...] = ()
    rewritten: tuple[int, int] = (0, 0)


class Reading(msgspec.Struct, frozen=True):
    """How files are known, and read.

    detect: head -> how well it fits. layout: head -> layout (never raises on bad bytes: findings). schemas: all
        structures, by name.
    variants: the names that `--format NAME:VARIANT` accepts; `layout` then gets the keyword argument `variant`: the
        one that the user fixed, or None.
    levels: what a record can be (`Hints.level`), the usual one first. event_level: the one whose records are the events
        inside of the usual ones: each has the number of the record that holds it, its place there (`inner`), and an
        object, which the others lack.
    seek: layout context, what is wanted -> the parts `[start, end)` of the file, between frame borders, that can hold
        wanted records, in order; None = all of it.
    cutter: layout -> what finds the places where reading can begin anew (`formats.cuts`), or None: this file is read
        from its start.
    carries: what holds at the end of a file holds in the next one of the log, too: the cutter is a `CarryingCutter`.
    bundles: layout, limits -> what takes the bundles of events out of a file, for a log in another container; raises
        `UsageError` where that cannot be. None = the records are no events of a server's binary log.
    apart: layout context -> one that knows the same, and whose learning does not reach the first; None = nothing is
        learned from records.
    settled: layout -> what the rules of a set and a replay need of it once the file was read, which is kept of each
        file of a directory; None = all of it.
    heads: of a file with a damaged head: which flipped bit explains it, proven (`formats.heads`).
    compiled_layouts: the layouts for which native code is made when the package is built; they represent all that files
        can have. None = all layouts run as Python.
    """

    detect: Callable[[Head], Match]
    layout: Callable[..., Layout]
    schemas: Mapping[str, Construct]
    variants: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    event_level: str | None = None
    seek: Callable[[Any, GtidDemand], list[tuple[int, int]] | None] | None = None
    cutter: Callable[[Layout], Cutter | None] | None = None
    carries: bool = False
    bundles: Callable[[Layout, Limits], Bundler] | None = None
    apart: Callable[[Any], Any] | None = None
    settled: Callable[[Layout], Layout] | None = None
    heads: Heads | None = None
    compiled_layouts: Callable[[], Iterable[Layout]] | None = None


class Judging(msgspec.Struct, frozen=True):
    """What is right and wrong.

    judge: layout, `compile` (turns a kernel function into the fastest callable at hand), limits -> Judge.
    judge_set: members in order -> findings about the set.
    explain_damage: layout, bytes from the damage on (bounded), file offset, what is wrong as the engine sees it -> the
        same finding with the format's own knowledge added (facts such as "payload intact, length wrong").
    numbers_by_judge: the first and the last sequence number of a file are in the judge's verdict; else `describe` is
        asked for those of its first and last record.
    """

    judge: Callable[[Layout, Callable[[Kernel], Kernel], Limits], Judge]
    judge_set: Callable[[Sequence[Member]], Sequence[SetFinding]] | None = None
    explain_damage: Callable[[Layout, memoryview, int, Finding], Finding] | None = None
    numbers_by_judge: bool = False


class Output(msgspec.Struct, frozen=True):
    """Records as people and programs read them.

    types: type code -> name, all that the format knows. type_groups: names that stand for several of these.
    describe: layout context, batch, start, stop -> envelope columns of these records.
    bodies: the same arguments plus limits -> one JSON-able body per record (bytes as they are; the report wraps them);
        a body that cannot be decoded is a `Finding` in its place; `Noted` = a body and findings about it.
    extras: the same arguments -> additional JSON members of a record, or None. extra_names: their names.
    json: layout context -> how compiled code writes lines of JSON; None = only the general writer does.
    gtids: how transactions are chosen; None = by their texts only.
    sql: starts the statements of a log. None = its records are nothing that a server takes as statements.
    changes: starts the changes of rows of a log. None = it does not tell any with names and types of columns.
    """

    types: Mapping[int, str]
    describe: Callable[[Any, Batch, int, int], Described]
    bodies: Callable[[Any, Batch, int, int, Limits], list[Any]]
    extras: Callable[[Any, Batch, int, int], list[Mapping[str, Any] | None]] | None = None
    extra_names: tuple[str, ...] = ()
    json: Callable[[Any], JsonLine | None] | None = None
    gtids: GtidRules | None = None
    sql: Callable[[Wording], Script] | None = None
    changes: Callable[[], Changes] | None = None
    type_groups: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)


class Format(msgspec.Struct, frozen=True):
    """One log format. Everything the engine knows about it; its help is `help.md` beside it.

    repair: what a repair needs to know beyond the durable end. replay: what the server would do; None = nothing replays
    such a log. tables: the tables that its logs have, and how records become rows of them; None = only rows of records
    are made. references: where the format is described. variant: the one that the user fixed.
    """

    name: str
    title: str
    files: Files
    reading: Reading
    judging: Judging
    output: Output
    repair: Repair = PLAIN
    replay: Replay | None = None
    tables: Callable[[], Tables] | None = None
    references: tuple[str, ...] = ()
    variant: str | None = None

    @property
    def spec(self) -> str:
        """What `--format` would have to be given to get this very description."""
        return self.name if self.variant is None else f"{self.name}:{self.variant}"
