"""JSON Schemas of the outputs.

Outputs grow within a major version: readers must accept members that are not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.findings import EXPLANATIONS, Severity
from binlogtool.format_api.replay import POLICIES, VERBS
from binlogtool.verification.verify_report import BYTE_CLASSES

# --- Building blocks of the JSON Schemas ---

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

TEXT: dict[str, Any] = {"type": "string"}
BOOL: dict[str, Any] = {"type": "boolean"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
ANY: dict[str, Any] = {}
_BYTES: dict[str, Any] = {
    "type": "object", "properties": {"$bytes": TEXT}, "required": ["$bytes"], "additionalProperties": False,
}  # fmt: skip
NAME: dict[str, Any] = {"anyOf": [TEXT, _BYTES], "description": "text; bytes where the name is not valid text"}


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these required and optional members."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def list_of(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an array of these items."""
    return {"type": "array", "items": items}


def counts_schema() -> dict[str, Any]:
    """Return the schema of an object of numbers."""
    return {"type": "object", "additionalProperties": COUNT}


def schema_document(name: str, title: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a complete schema document, as it is printed."""
    return {"$schema": _DIALECT, "$id": f"binlogtool/{name}/1", "title": title, **body}


def schema_constant(name: str) -> dict[str, Any]:
    """Return the schema of a document's member `schema`, a constant."""
    return {"const": f"binlogtool/{name}/1"}


# --- JSON Schema of `hexdump-annotate --diff -O json` ---

_NUMBER_PAIR: dict[str, Any] = {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}
FIELD = object_of(
    {
        "path": TEXT,
        "start": COUNT,
        "end": COUNT,
        "value": ANY,
        "meaning": TEXT,
        "unit": {"enum": ["file", "decompressed"]},
        "bits": or_null(_NUMBER_PAIR),
    },
    space=TEXT,
    ok=BOOL,
)

_PLACE = object_of(
    {"start": COUNT, "end": COUNT},
    kind={"enum": ["header", "frame", "damage", "gap"]},
    record=or_null(COUNT),
    records=COUNT,
    types=list_of(TEXT),
)
_CHANGED = object_of({"a": or_null(FIELD), "b": or_null(FIELD), "bytes": list_of(_NUMBER_PAIR)})

DIFF = object_of(
    {
        "schema": schema_constant("diff"),
        "a": object_of({"file": NAME, "size": COUNT}),
        "b": object_of({"file": NAME, "size": COUNT}),
        "format": TEXT,
        "parts": list_of(
            object_of(
                {
                    "kind": {"enum": ["same", "changed", "only-a", "only-b"]},
                    "a": or_null(_PLACE),
                    "b": or_null(_PLACE),
                },
                records=COUNT,
                fields=list_of({"anyOf": [_CHANGED, FIELD]}),
                fields_same=COUNT,
            )
        ),
        "differences": COUNT,
    }
)


# --- JSON Schemas (draft 2020-12) of the outputs ---


_FINDING = object_of(
    {
        "id": {"type": "string", "enum": sorted(EXPLANATIONS)},
        "severity": {"enum": [s.label for s in Severity]},
        "offset": or_null(COUNT),
        "length": COUNT,
        "record": or_null(COUNT),
        "message": TEXT,
        "facts": {"type": "object"},
    }
)

_CHECKSUM = object_of({"algorithm": TEXT, "stored": TEXT, "computed": TEXT, "ok": or_null(BOOL)})

_FILE = object_of(
    {
        "path": NAME,
        "format": TEXT,
        "variant": TEXT,
        "size": COUNT,
        "records": or_null(COUNT),
        "record_types": counts_schema(),
        "transactions": COUNT,
        "durable_end": or_null(COUNT),
        "closed": or_null(BOOL),
        "bytes": {**object_of(dict.fromkeys(BYTE_CLASSES, COUNT)), "description": "sums to size"},
        "findings": list_of(_FINDING),
    },
    first_seq=or_null({"type": "integer"}),
    last_seq=or_null({"type": "integer"}),
    encrypted=BOOL,
    details={"type": "object"},
)

_NOT_LOGS = list_of(object_of({"path": NAME, "files": list_of(object_of({"name": NAME, "kind": TEXT}))}))

_VERIFY = object_of(
    {
        "schema": schema_constant("verify"),
        "tool": object_of({"name": TEXT, "version": TEXT}),
        "status": {"enum": ["clean", "findings", "incomplete"]},
        "files": list_of(_FILE),
        "sets": list_of(
            object_of({"path": NAME, "format": TEXT, "members": list_of(NAME), "findings": list_of(_FINDING)})
        ),
        "summary": object_of(
            {
                "files": COUNT,
                "bytes": COUNT,
                "records": COUNT,
                "findings": object_of({s.label: COUNT for s in sorted(Severity, reverse=True)}),
            },
            left_out=counts_schema(),
        ),
    },
    failures=list_of(object_of({"path": NAME, "message": TEXT, "exit_code": {"type": "integer"}})),
    not_logs=_NOT_LOGS,
)

_RECORD = object_of(
    {
        "file": NAME,
        "offset": COUNT,
        "size": COUNT,
        "record": COUNT,
        "type": TEXT,
        "seq": or_null({"type": "integer"}),
        "time": or_null({"type": "string", "format": "date-time"}),
        "object": or_null(NAME),
        "origin": or_null({"type": "integer"}),
        "txn": or_null({"type": ["string", "integer"]}),
        "checksum": or_null(_CHECKSUM),
        "body": ANY,
        "findings": list_of(_FINDING),
    },
    inner=object_of({"offset": COUNT, "size": COUNT}),
)

_ANNOTATE = object_of(
    {
        "schema": schema_constant("annotate"),
        "file": NAME,
        "size": COUNT,
        "fields": list_of(FIELD),
        "findings": list_of(_FINDING),
    }
)

_WRITTEN = object_of(
    {
        "path": NAME,
        "size_before": COUNT,
        "sha256_before": TEXT,
        "size_after": COUNT,
        "sha256_after": TEXT,
    }
)

_PLAN = object_of(
    {
        "schema": schema_constant("plan"),
        "format": TEXT,
        "refused": BOOL,
        "reasons": list_of(TEXT),
        "files": list_of(
            object_of(
                {
                    "path": NAME,
                    "size": COUNT,
                    "action": {"enum": ["none", "truncate", "zero-fill", "rewrite", "remove"]},
                    "durable_end": or_null(COUNT),
                    "cut_bytes": COUNT,
                    "cut_valid_records": COUNT,
                    "proof": {"type": "object"},
                    "sha256_kept": or_null(TEXT),
                    "sha256_cut": or_null(TEXT),
                },
                inode=COUNT,
                mtime_ns={"type": "integer"},
                made_like=NAME,
                result=list_of(object_of({}, start=COUNT, end=COUNT, zeros=COUNT, bytes=TEXT)),
            )
        ),
    },
    target=NAME,
    asked={"type": "object"},
    notes=list_of(TEXT),
    not_logs=_NOT_LOGS,
    applied=BOOL,
    undo=or_null(NAME),
    written=list_of(_WRITTEN),
)

_UNDO = object_of(
    {
        "schema": schema_constant("undo"),
        "undo": NAME,
        "state": {"enum": ["prepared", "applied", "undone"]},
        "made": TEXT,
        "refused": BOOL,
        "reasons": list_of(TEXT),
        "files": list_of(
            object_of({"action": {"enum": ["none", "restore"]}, **_WRITTEN["properties"]}),
        ),
    },
    applied=BOOL,
)

_MANIFEST = object_of(
    {
        "schema": schema_constant("manifest"),
        "tool": object_of({"name": TEXT, "version": TEXT}),
        "status": {"enum": ["complete", "stopped"]},
        "to": TEXT,
        "output": or_null(TEXT),
        "on_damage": {"enum": ["stop", "skip", "salvage"]},
        "inputs": list_of(object_of({"path": NAME, "format": TEXT, "size": COUNT, "sha256": TEXT, "records": COUNT})),
        "outputs": list_of(object_of({"path": TEXT, "rows": COUNT, "size": COUNT})),
        "rows": COUNT,
        "damage_rows": COUNT,
        "findings": list_of({"type": "object"}),
        "finding_counts": counts_schema(),
        "checks": list_of(object_of({"name": TEXT, "detail": TEXT})),
    },
    details={"type": "object"},
)

_SERIES = object_of(
    {
        "schema": schema_constant("series"),
        "by": {"enum": ["object", "type", "origin"]},
        "bucket": {"enum": ["1m", "1h", "1d"]},
        "groups": list_of(object_of({"name": or_null(TEXT), "records": COUNT, "bytes": COUNT})),
        "over_time": list_of(
            object_of({"time": or_null(TEXT), "name": or_null(TEXT), "records": COUNT, "bytes": COUNT})
        ),
    }
)

_TRANSACTION = object_of(
    {
        "transaction": TEXT,
        "file": TEXT,
        "offset": COUNT,
        "records": COUNT,
        "bytes": COUNT,
        "rows": COUNT,
        "seconds": {"type": "number", "minimum": 0},
        "first_time": or_null(TEXT),
        "last_time": or_null(TEXT),
        "tables": counts_schema(),
    }
)
_TRANSACTIONS = object_of(
    {
        "schema": schema_constant("transactions"),
        "transactions": COUNT,
        "most": object_of({name: list_of(_TRANSACTION) for name in ("bytes", "rows", "duration")}),
    }
)

_FORMAT = object_of(
    {
        "schema": schema_constant("format"),
        "name": TEXT,
        "title": TEXT,
        "members": list_of(TEXT),
        "types": list_of(object_of({"code": {"type": "integer"}, "name": TEXT})),
        "schemas": list_of(TEXT),
        "references": list_of(TEXT),
    }
)

_EXPLAIN = object_of(
    {
        "schema": schema_constant("explain"),
        "findings": list_of(object_of(dict.fromkeys(("id", "severity", "meaning", "causes", "action"), TEXT))),
    },
    statuses=list_of(object_of(dict.fromkeys(("status", "meaning", "causes", "action"), TEXT))),
)

_PROGRESS = object_of(
    {
        "schema": schema_constant("progress"),
        "what": TEXT,
        "done": COUNT,
        "total": or_null(COUNT),
        "records": COUNT,
        "seconds": {"type": "number"},
    },
    left={"type": "number"},
    rate={"type": "number"},
)

_VERBS = object_of(dict.fromkeys(VERBS, COUNT))

_REPLAYED_OBJECT = object_of(
    {
        "name": NAME,
        **_VERBS["properties"],
        "first_seq": or_null({"type": "integer"}),
        "last_seq": or_null({"type": "integer"}),
    },
    keys={"type": ["integer", "null"], "description": "rows at the end; null: see `unknown`"},
    digest=or_null(TEXT),
)

_REPLAY = object_of(
    {
        "schema": schema_constant("replay"),
        "format": TEXT,
        "policy": {"enum": list(POLICIES)},
        "decisions": _VERBS,
        "reasons": counts_schema(),
        "objects": list_of(_REPLAYED_OBJECT),
        "stops_at": or_null(object_of({"file": NAME, "offset": or_null(COUNT), "why": TEXT})),
        "position": {"type": "object"},
        "digest": or_null(TEXT),
    },
    path=NAME,
    starts=or_null(BOOL),
    read=list_of(NAME),
    findings=list_of(object_of({"file": NAME, **_FINDING["properties"]})),
    rules={"type": "object", "additionalProperties": TEXT},
    details={"type": "object"},
    unknown={"type": "object", "additionalProperties": TEXT, "description": "object -> why its rows are not known"},
)

_DECISION = object_of(
    {
        **{name: _RECORD["properties"][name] for name in ("file", "record", "offset", "size", "type", "seq", "time")},
        "object": or_null(NAME),
        "txn": _RECORD["properties"]["txn"],
        "decision": {"enum": list(VERBS)},
        "reason": TEXT,
    }
)

_COMPARE = object_of(
    {
        "schema": schema_constant("compare"),
        "equal": BOOL,
        "differs": list_of(object_of({"name": NAME})),
        "replays": list_of(_REPLAY),
        "others": list_of(_REPLAY),
    }
)

_DIAGNOSED = object_of(
    {
        "path": NAME,
        "formats": list_of(TEXT),
        "files": list_of(NAME),
        "bytes": COUNT,
        "records": COUNT,
        "start": {"enum": ["yes", "no", "open", "unknown"], "description": "open: cannot be determined from this log"},
        "why": TEXT,
        "well": BOOL,
        "live": BOOL,
        "state": TEXT,
        "directory": or_null(object_of({"owner": TEXT, "group": TEXT, "mode": TEXT, "free_bytes": COUNT})),
        "rejected": COUNT,
        "storage_engine": list_of(
            object_of({"committed_to": TEXT, "missing": or_null(TEXT), "missing_bytes": COUNT, "text": TEXT})
        ),
        "lost": list_of(
            object_of(
                {
                    "file": NAME,
                    "offset": COUNT,
                    "length": COUNT,
                    "unit": TEXT,
                    "names": list_of(TEXT),
                    "may_be_cut": or_null(TEXT),
                    "after": or_null(TEXT),
                }
            )
        ),
        "losses": list_of(object_of({"file": NAME, **_FINDING["properties"]})),
        "findings": counts_schema(),
        "plan": or_null(_PLAN),
        "steps": list_of(object_of({"what": TEXT, "command": or_null(TEXT)})),
        "read": list_of(TEXT),
    },
    replay=TEXT,
)

_DIAGNOSE = object_of(
    {
        "schema": schema_constant("diagnose"),
        "tool": object_of({"name": TEXT, "version": TEXT}),
        "logs": list_of(_DIAGNOSED),
        "failures": list_of(object_of({"path": NAME, "message": TEXT, "exit_code": {"type": "integer"}})),
        "summary": object_of({"logs": COUNT, "well": COUNT, "start": counts_schema()}),
    }
)

SCHEMAS: Mapping[str, dict[str, Any]] = {
    "verify": schema_document("verify", "verify -O json", _VERIFY),
    "record": schema_document("record", "one line of dump -O jsonl", _RECORD),
    "records": schema_document(
        "records", "dump -O json", object_of({"schema": schema_constant("record"), "records": list_of(_RECORD)})
    ),
    "series": schema_document("series", "stats -O json", _SERIES),
    "transactions": schema_document("transactions", "stats --by transaction -O json", _TRANSACTIONS),
    "annotate": schema_document("annotate", "hexdump-annotate -O json", _ANNOTATE),
    "diff": schema_document("diff", "hexdump-annotate --diff -O json", DIFF),
    "plan": schema_document("plan", "truncate-to-durable -O json", _PLAN),
    "undo": schema_document("undo", "undo -O json", _UNDO),
    "replay": schema_document("replay", "replay-dry-run -O json", _REPLAY),
    "decision": schema_document("decision", "one line of replay-dry-run -O jsonl", _DECISION),
    "diagnose": schema_document("diagnose", "diagnose -O json", _DIAGNOSE),
    "compare": schema_document("compare", "replay-dry-run --compare -O json", _COMPARE),
    "manifest": schema_document("manifest", "convert -O json, and its --manifest", _MANIFEST),
    "format": schema_document("format", "formats NAME -O json", _FORMAT),
    "explain": schema_document("explain", "explain -O json", _EXPLAIN),
    "progress": schema_document("progress", "one line of --progress json", _PROGRESS),
}
"""Name of an output -> its JSON Schema."""
