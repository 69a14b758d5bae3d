"""Repair plan as a value (JSON shape binlogtool/plan/1), and the reasons to refuse a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from binlogtool.findings import Finding, Severity
from binlogtool.format_api.encode_json import pick_members
from binlogtool.format_api.format import SERVER_TRUNCATES, ResultPiece, is_header_correction
from binlogtool.verification import verify_report
from binlogtool.verification.verify_report import FileReport, SkippedFiles

__all__ = [
    "FilePlan",
    "FilePlans",
    "FinishPlan",
    "RepairPlan",
    "RepairPolicy",
    "RepairResult",
    "ResultPiece",
    "UndoPlan",
    "WrittenFile",
    "pieces_from_json",
    "pieces_to_json",
]

FLIPPED_BIT_ADVICE = "--to-file NEW --keep-after-damage writes a copy with the bit corrected"


# --- A repair as a value ---


class RepairPolicy(msgspec.Struct, frozen=True):
    """Kind of repair that the user asks for, and the losses that it may cause (the options of `truncate-to-durable`).

    Attributes:
        max_loss: Maximum number of bytes that may be cut; None = no limit.
        max_loss_records: Maximum number of complete records that may be cut; None = no limit.
        allow_discard_valid: Complete records after damage may be discarded.
        fix_meta: Also correct lists of files and headers.
        write_close_marker: Also write the end mark of a closed file.
        salvage: Also keep provable records after damage.
        correct_bits: In a salvage, correct a flipped bit where the stored checksum is then right.
        copy: The result goes to a new file; the source is not changed.
        transactions: Cut after the last complete transaction, not after the last complete record.
        allow_empty_result: Allow a result without records, if a single file was given and its format was named.
    """

    max_loss: int | None = None
    max_loss_records: int | None = None
    allow_discard_valid: bool = False
    fix_meta: bool = False
    write_close_marker: bool = False
    salvage: bool = False
    correct_bits: bool = False
    copy: bool = False
    transactions: bool = False
    allow_empty_result: bool = False

    def get_non_default_settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as JSON."""
        members = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in members.items() if value is not None and value is not False}


class FilePlan(msgspec.Struct, frozen=True, array_like=True):
    """The repair of one file.

    Attributes:
        action: none, truncate, zero-fill, rewrite or remove.
        durable_end: Offset after the last record that is proven durable; None if there is none.
        cut_bytes: Number of bytes that are removed.
        cut_valid_records: Number of complete records that are removed.
        proof: The reasons for this result, as a JSON value.
        sha256_kept, sha256_cut: Hashes of the bytes that are kept, and of the others.
        inode, mtime_ns: Identity of the file when it was read.
        pieces: The bytes of the result, in order; none for `none` and `remove`.
        made_like: For a file that does not exist yet, the file whose mode and owner it gets.
    """

    path: str
    size: int
    action: str
    durable_end: int | None
    cut_bytes: int
    cut_valid_records: int
    proof: Mapping[str, Any]
    sha256_kept: str | None
    sha256_cut: str | None
    inode: int | None = None
    mtime_ns: int | None = None
    pieces: tuple[ResultPiece, ...] = ()
    made_like: str | None = None

    @property
    def kept_records(self) -> int:
        """Number of complete records in the result."""
        if self.action == "remove":
            return 0
        return int(self.proof.get("records_kept", self.proof.get("records")) or 0)

    @property
    def result_size(self) -> int:
        """Size of the result in bytes; 0 if the file is removed."""
        if self.action == "remove":
            return 0
        return sum(p.size for p in self.pieces) if self.pieces else self.size

    @property
    def corrects_bits(self) -> bool:
        """True if flipped bits are corrected and nothing is cut."""
        return "corrected" in self.proof and not self.cut_bytes

    def to_json_value(self) -> dict[str, Any]:
        """Return the JSON value of the file plan, an item of the plan's `files`."""
        return {
            **pick_members(self, "path", "size", "action", "durable_end", "cut_bytes", "cut_valid_records"),
            "proof": dict(self.proof),
            **pick_members(self, "sha256_kept", "sha256_cut"),
            **(pick_members(self, "inode", "mtime_ns") if self.inode is not None else {}),
            **({"made_like": self.made_like} if self.made_like is not None else {}),
            **({"result": pieces_to_json(self.pieces)} if self.action in ("rewrite", "zero-fill") else {}),
            **({"grows_to": self.result_size} if self.result_size > self.size else {}),
        }


class FilePlans(verify_report.CompactList[FilePlan]):
    """Plans for many files, in the order of the files."""

    __slots__ = ()
    struct = FilePlan

    @staticmethod
    def is_packable(value: FilePlan, /) -> bool:
        """Return True for the plans of unchanged files."""
        return value.action == "none" and not value.pieces


def pieces_to_json(pieces: tuple[ResultPiece, ...]) -> list[dict[str, Any]]:
    """Return pieces as JSON values: ranges of the file, zeros, and new bytes in hexadecimal digits."""
    return [_piece_to_json(one) for one in pieces]


def _piece_to_json(piece: ResultPiece) -> dict[str, Any]:
    if piece.data is not None:
        return {"bytes": piece.data.hex()}
    return {"zeros": piece.zeros} if piece.zeros else {"start": piece.start, "end": piece.end}


def pieces_from_json(value: list[dict[str, Any]]) -> tuple[ResultPiece, ...]:
    """Restore pieces from `pieces_to_json`."""
    return tuple(_piece_from_json(one) for one in value)


def _piece_from_json(value: dict[str, Any]) -> ResultPiece:
    if "bytes" in value:
        return ResultPiece(data=bytes.fromhex(value["bytes"]))
    return (
        ResultPiece(zeros=int(value["zeros"]))
        if "zeros" in value
        else ResultPiece(int(value["start"]), int(value["end"]))
    )


class RepairPlan(msgspec.Struct, frozen=True):
    """Plan for all files of one repair.

    Attributes:
        refused: True if a safety rule forbids the repair.
        reasons: Why it is refused; also reasons that do not forbid it.
        target: The path that the plan was made for.
        policy: The policy that it was made with.
        notes: Further information for the user.
        skipped: The files of the directory that are not logs; they are not touched.
        salvaged_copy: For a refused plan, the plan of a salvaged copy of the file that makes it be refused; None if no
            such copy can be written.
    """

    format: str
    refused: bool
    reasons: tuple[str, ...]
    files: Sequence[FilePlan]
    target: str = ""
    policy: RepairPolicy = msgspec.field(default_factory=RepairPolicy)
    notes: tuple[str, ...] = ()
    skipped: tuple[SkippedFiles, ...] = ()
    salvaged_copy: FilePlan | None = None

    @property
    def blocking_file(self) -> FilePlan | None:
        """The file that the first reason is about; None if it is about no file."""
        return next((one for one in self.files if self.reasons and self.reasons[0].startswith(f"{one.path}: ")), None)

    @property
    def has_encrypted_file(self) -> bool:
        """True if a file is encrypted and its key was not given."""
        return any(file.proof.get("encrypted") for file in self.files)

    @property
    def changes(self) -> tuple[FilePlan, ...]:
        """The plans of the files that would change."""
        return tuple(f for f in self.files if f.action != "none")

    def to_json_value(self) -> dict[str, Any]:
        """Return the value of `truncate-to-durable -O json`."""
        asked = self.policy.get_non_default_settings()
        return {
            "schema": "binlogtool/plan/1",
            "format": self.format,
            "refused": self.refused,
            "reasons": list(self.reasons),
            "files": [f.to_json_value() for f in self.files],
            **({"target": self.target} if self.target else {}),
            **({"asked": asked} if asked else {}),
            **({"notes": list(self.notes)} if self.notes else {}),
        }


class WrittenFile(NamedTuple):
    """File that was changed or created: sizes in bytes and SHA-256, before and after; "" if it does not exist."""

    path: str
    size_before: int
    sha256_before: str
    size_after: int
    sha256_after: str


class RepairResult(msgspec.Struct, frozen=True):
    """Changes that a repair or an undo made.

    Attributes:
        undo: The undo file; None if no existing file was changed.
        notes: Further information for the user.
    """

    files: tuple[WrittenFile, ...]
    undo: str | None
    notes: tuple[str, ...] = ()


class UndoPlan(msgspec.Struct, frozen=True):
    """Plan of an undo.

    Attributes:
        undo: The undo file.
        state: State of the undo file: prepared, applied or undone.
        made: Time when the undo file was made.
        files: Path, action (`restore`, or `none` if the file already is the original), and the change.
        reasons: Why the undo is not possible; empty if it is.
    """

    undo: str
    state: str
    made: str
    files: tuple[tuple[str, str, WrittenFile], ...]
    reasons: tuple[str, ...]


class FinishPlan(msgspec.Struct, frozen=True):
    """Plan to finish an interrupted repair.

    Attributes:
        intent: The intent file.
        undo: Its undo file; None if that was removed because nothing had been changed yet.
        direction: apply or undo.
        files: Path and action of each file.
    """

    intent: str
    undo: str | None
    direction: str
    files: tuple[tuple[str, str], ...]


# --- Reasons to refuse the cut of a file ---

CUTTABLE = ("torn-tail", "zero-tail", "garbage-tail")
"""Findings whose bytes may be cut without further consent. Space reserved by the writer (preallocated-tail) is kept."""
EMPTY_RESULT = "no record would be kept"
"""Beginning of the reason against a plan that would keep no record."""
UNFINISHED_ADVICE = "--apply finishes it first"
WHOLE_LOG_ADVICE = "name the directory"
LIST_FIX_OPTION = "--fix-meta"
"""Option named in reasons that may not apply if it is given."""
UNCERTAIN_DIALECT = "dialect not certain"
"""Finding about a log that can be read in two dialects: bytes that are garbage in one may be a record in the other."""


def collect_refusals(report: FileReport, plan: FilePlan, policy: RepairPolicy) -> list[str]:
    """Return the reasons against a file's plan as texts; none for a file that does not change."""
    reasons = []
    if report.is_encrypted:
        reasons.append(f"{report.path}: {describe_end_of_encrypted_log(report)}")
    elif plan.durable_end is None and not plan.corrects_bits:
        reasons.append(f"{report.path}: the header cannot be read; no durable end can be given")
    if plan.action == "none":
        return reasons
    if plan.result_size < report.bytes.get("header", 0) <= report.size:
        reasons.append(f"{report.path}: the durable end is inside the file's header; truncation cannot repair it")
    server_cuts = bool(report.details.get(SERVER_TRUNCATES)) and all(
        f.id != "valid-after-damage" for f in report.findings
    )
    blocking = [f for f in report.findings if not _is_change_allowed_despite_finding(f, plan, policy, server_cuts)]
    reasons += [_describe_refusal(report, f) for f in sorted(blocking, key=_is_detail)]
    if not reasons:
        reasons += [f"{report.path}: the result would not be clean: {text}" for text in plan.proof.get("not_clean", ())]
    return reasons + list_exceeded_loss_limits(plan, policy)


def describe_end_of_encrypted_log(report: FileReport) -> str:
    """Describe what is known about the end of an encrypted log without its key."""
    known_bytes = report.bytes.get("record", 0)
    sizes = f"the sizes of its events account for {known_bytes:,} of {report.size:,} bytes; " if known_bytes else ""
    return f"the log is encrypted; {sizes}its durable end is only known with --keyfile FILE"


def list_exceeded_loss_limits(plan: FilePlan, policy: RepairPolicy) -> list[str]:
    """Return the reasons against cutting more than --max-loss and --max-loss-records allow."""
    reasons = []
    if policy.max_loss is not None and plan.cut_bytes > policy.max_loss:
        reasons.append(f"{plan.path}: {plan.cut_bytes:,} bytes would be removed, --max-loss allows {policy.max_loss:,}")
    if policy.max_loss_records is not None and plan.cut_valid_records > policy.max_loss_records:
        lost, bound = plan.cut_valid_records, policy.max_loss_records
        reasons.append(f"{plan.path}: {lost:,} complete records would be removed, --max-loss-records allows {bound:,}")
    return reasons


def list_empty_result_reasons(plans: Sequence[FilePlan], *, allow_empty: bool) -> list[str]:
    """Return the reasons against a plan that cuts and would keep no record, or no byte of a file.

    Args:
        allow_empty: Accept an empty result.
    """
    cut = [one for one in plans if one.cut_bytes and one.made_like is None]
    if allow_empty or not cut:
        return []
    if not any(one.kept_records for one in plans):
        text = f"{EMPTY_RESULT}: this is not a log, or truncation would keep nothing of it"
        return [f"{cut[0].path}: {text}"]
    return [
        f"{one.path}: no byte of the file would be left"
        for one in cut
        if one.action != "remove" and not one.result_size
    ]


def _is_change_allowed_despite_finding(
    finding: Finding, plan: FilePlan, policy: RepairPolicy, server_cuts: bool
) -> bool:
    """Return True if the file may be changed in spite of the finding.

    Args:
        server_cuts: The server itself cuts after the durable end.
    """
    if finding.id == "changed-while-read" or finding.facts.get("diagnosis") == UNCERTAIN_DIALECT:
        return False
    if finding.severity is not Severity.ERROR or finding.id in (*CUTTABLE, "damaged-range"):
        return True
    if finding.id == "gap-in-sequence":
        return False
    if policy.salvage and (plan.corrects_bits or is_header_correction(finding)):
        return True
    is_after_end = plan.durable_end is not None and finding.offset is not None and finding.offset >= plan.durable_end
    return is_after_end and (server_cuts or policy.allow_discard_valid or policy.salvage)


def _is_detail(finding: Finding) -> bool:
    """Return True for a finding that is listed after findings about lost records."""
    return finding.id not in ("valid-after-damage", "gap-in-sequence")


def _describe_refusal(report: FileReport, finding: Finding) -> str:
    if finding.id == "changed-while-read":
        return f"{report.path}: {finding.id}: {finding.message}; plan again when nobody writes to it"
    if finding.id == "valid-after-damage":
        return f"{report.path}: {finding.id}: {finding.message}; truncating would discard them"
    if finding.id == "gap-in-sequence":
        return f"{report.path}: {finding.id}: {finding.message}; truncating would hide that"
    return f"{report.path}: {finding.id} at {finding.offset or 0:#x}: {finding.message}"
