"""Plan a start: the log files that a server replays, their order, and what makes it refuse.

Source: `docs/spec/manticore-binlog.md#81-at-start-before-it-serves-anybody`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

import msgspec

from binlogtool.findings import Finding, Severity
from binlogtool.formats.heads import is_corrected
from binlogtool.formats.manticore import schema
from binlogtool.formats.manticore.layout import LogContext, MetaContext
from binlogtool.formats.manticore.payloads.sphinx4 import LAST_LOWEST_FIRST
from binlogtool.formats.replay_rules import Examined, Situation, Stop

NO_ID32 = 7
"""From this version on no build has document ids of 32 bits (Manticore 2.8: "no longer supported")."""
CHECKS_FIRST = 16
"""From this version on the server looks at the versions of all listed files before it replays the first."""
FORCES_TRANSACTIONS = 14
"""From this version on `ignore-trx-errors` and `ignore-all-errors` are known to exist."""
FORCES_VERSIONS = (14, 15)
"""Versions whose server starts on a file of another version, if it is told to ignore all errors; 15 deletes it."""
SETTINGS_LEAVE_TID = (7,)
"""Versions whose server applies a RECONFIGURE without its TID: the next transaction of the table then has an
unexpected one (seen with the percolate tables of Manticore 2.8.2; those of Sphinx 2.2 and Manticore 6.3 count it)."""


class Plan(msgspec.Struct, frozen=True):
    """The plan of one start.

    Attributes:
        files: members that are replayed, in order.
        missing: name of a listed file that does not exist -> number of files that are replayed before it.
        unlisted: members that the server skips.
        version: of the server.
        unchecked: why it is not certain whether the server starts, in words.
    """

    files: tuple[Examined, ...] = ()
    missing: Mapping[str, int] = msgspec.field(default_factory=dict)
    unlisted: tuple[Examined, ...] = ()
    version: int = schema.LAST_VERSION
    refusal: Stop | None = None
    no_list: bool = False
    unchecked: tuple[str, ...] = ()


def log_context(file: Examined) -> LogContext | None:
    """Return the context of a log file; None if it is none."""
    context = None if file.layout is None else file.layout.context
    return context if isinstance(context, LogContext) else None


def plan(situation: Situation) -> Plan:
    """Plan the start of the server of these files. Single files are replayed in the order of their names."""
    logs = tuple(file for file in situation.files if log_context(file) is not None or file.layout is None)
    metas = [file for file in situation.files if _meta(file) is not None]
    own = (situation.against or {}).get("version")
    if not metas and situation.whole:
        return Plan(unlisted=logs, no_list=True)
    if not metas:
        return _checked(Plan(logs, version=own or _version_of(logs)), _version_of(logs))
    return _listed(metas[0], logs, own, situation.whole)


def _version_of(logs: tuple[Examined, ...]) -> int:
    contexts = [context for context in map(log_context, logs) if context is not None]
    return contexts[0].version if contexts else schema.LAST_VERSION


def _meta(file: Examined) -> MetaContext | None:
    context = None if file.layout is None else file.layout.context
    return context if isinstance(context, MetaContext) and not context.leftover else None


def _listed(file: Examined, logs: tuple[Examined, ...], own: int | None, whole: bool) -> Plan:
    meta = _meta(file)
    assert meta is not None
    version = own or meta.version or _version_of(logs)
    if meta.version is None and file.size == len(b"SPLI") and not file.findings[1:] and not logs:
        text = "not checked: binlog.meta ends after its magic number, and no log says which server wrote it: "
        return Plan(no_list=True, unchecked=(f"{text}servers up to version 14 start, newer ones do not",))
    why = _bad_meta(file, meta, version, logs)
    if why is not None:
        return Plan(unlisted=logs, version=version, refusal=why)
    by_name = {posixpath.basename(log.name): log for log in logs}
    short = meta.version is not None and not (meta.whole or meta.cut)
    numbers = (*meta.numbers, *((0,) if short else ()))  # missing numbers are read as 0
    names = list(dict.fromkeys(map(meta.name, numbers)))
    files = tuple(by_name.pop(name) for name in names if name in by_name)
    there = {posixpath.basename(log.name) for log in files}
    missing = {name: sum(one in there for one in names[:at]) for at, name in enumerate(names) if name not in there}
    found = Plan(files, missing if whole else {}, tuple(by_name.values()), version, no_list=not names)
    return _checked(found, meta.version or version)


def _bad_meta(file: Examined, meta: MetaContext, version: int, logs: tuple[Examined, ...]) -> Stop | None:
    """Return why the list cannot be used. Where transactions prove document ids of 4 bytes, the server is a build for
    them.
    """
    for found in file.findings:
        in_head = (found.offset or 0) < schema.HEADER_SIZE  # not the list, nor the digits
        if found.facts.get("server") == "refuse" and in_head:
            return Stop(file.name, found.offset, found.message)
    contexts = [context for log in logs if (context := log_context(log)) is not None]
    of_32_bits = any(
        one.version < NO_ID32 and (one.ids_proven or (one.ids == schema.ID32 and one.version <= LAST_LOWEST_FIRST))
        for one in contexts
    )
    old = meta.version is not None and meta.version < schema.NEW_FRAME
    if old and meta.setting != 1 and meta.count and not of_32_bits:  # an empty list is not checked any further
        return Stop(file.name, schema.HEADER_SIZE, "USE_64BIT inconsistency (binary=1, binlog=0)")
    if meta.version is None and (file.size != len(b"SPLI") or not logs or _version_of(logs) >= schema.NEW_FRAME):
        return Stop(file.name, 0, "the meta file is torn in its head; what a server makes of that is not known")
    if (meta.version or 0) > version:
        text = f"binlog.meta is of version {meta.version}, the server of version {version}"
        return Stop(file.name, 4, f"{text}: recovery requires the other version")
    return None


def _checked(found: Plan, meta_version: int) -> Plan:
    """Check the versions of the files, where the server does so before anything else."""
    if found.version < CHECKS_FIRST:
        return found
    why = next(_foreign(found, meta_version), None)
    return found if why is None else Plan((), found.missing, found.unlisted, found.version, why)


def _foreign(found: Plan, meta_version: int) -> Iterator[Stop]:
    for file in found.files:
        said = said_version(file)
        if said is not None and said != found.version:
            text = f"the log is of version {said}, the server of version {found.version}"
            yield Stop(file.name, 4, f"{text}: recovery requires the previous server; no replay flag helps")
    if meta_version != found.version:
        for name in found.missing:
            yield Stop(name, None, f"a log listed by version {meta_version} cannot be opened, so it may hold data")


def said_version(file: Examined) -> int | None:
    """Return the version in the stored head of a log that holds data, or None."""
    context = log_context(file)
    flipped = corrected_head(file)
    if flipped is not None:
        as_it_is: int | None = flipped.facts["said_version"]
        return as_it_is
    if context is None or file.size <= schema.HEADER_SIZE or context.header not in ("whole", "version not known"):
        return None
    digits = "" if file.layout is None else file.layout.variant.partition(" ")[0].strip("v,")
    return int(digits) if digits.isdecimal() else context.version


def corrected_head(file: Examined) -> Finding | None:
    """Return the finding about the head of a file that is read with a bit corrected, or None."""
    return next(filter(is_corrected, () if file.layout is None else file.layout.findings), None)


def damage_at(file: Examined) -> int | None:
    """Return the offset of the first bytes that are no transaction, or None."""
    tail = file.tail
    if tail is None:
        return None
    if tail.first_damage is not None:
        return tail.first_damage
    return tail.end if tail.end < tail.size else None


def damage_finding(file: Examined, offset: int) -> Finding | None:
    """Return the finding about the damage at an offset, preferably one with the server's action, or None."""
    at = [found for found in file.findings if found.offset == offset]
    told = [found for found in at if "server" in found.facts]
    return next(iter(told or at), None)


def is_loss(found: Finding | None) -> bool:
    """Check that the damage is more than the torn end of a last write."""
    return found is not None and found.severity is Severity.ERROR
