"""JSON Schemas of the outputs.

Outputs grow within a major version: readers must accept members that are not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.findings import EXPLANATIONS, Severity
from binlogtool.format_api.replay_rules import POLICIES, VERBS
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


def parse_member_schemas(notation: str) -> dict[str, Any]:
    """Return the schemas of members, written as `name:type`, `name:type?` (or null) or `name:[type]` (array)."""
    schemas = dict[str, Any]()
    for name, kind in (word.split(":") for word in notation.split()):
        schema = _KINDS[kind.strip("[]?")]
        schemas[name] = (
            or_null(schema) if kind.endswith("?") else make_array_schema(schema) if kind.endswith("]") else schema
        )
    return schemas


def make_object_schema(required: str | Mapping[str, Any], optional: str = "", **more_optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these required and optional members; texts: see `parse_member_schemas`."""
    required = parse_member_schemas(required) if isinstance(required, str) else required
    properties = {**required, **parse_member_schemas(optional), **more_optional}
    return {"type": "object", "properties": properties, "required": list(required)}


def make_array_schema(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an array of these items."""
    return {"type": "array", "items": items}


def counts_schema() -> dict[str, Any]:
    """Return the schema of an object of numbers."""
    return {"type": "object", "additionalProperties": COUNT}


_KINDS: dict[str, dict[str, Any]] = {
    "text": TEXT, "name": NAME, "count": COUNT, "bool": BOOL, "any": ANY, "object": {"type": "object"},
    "int": {"type": "integer"}, "counts": counts_schema(),
}  # fmt: skip
"""Type in the notation of `parse_member_schemas` -> its schema."""


def schema_document(name: str, title: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a complete schema document, as it is printed."""
    return {"$schema": _DIALECT, "$id": f"binlogtool/{name}/1", "title": title, **body}


def schema_constant(name: str) -> dict[str, Any]:
    """Return the schema of a document's member `schema`, a constant."""
    return {"const": f"binlogtool/{name}/1"}


# --- JSON Schema of `hexdump-annotate --diff -O json` ---

_NUMBER_PAIR: dict[str, Any] = {"type": "array", "items": COUNT, "minItems": 2, "maxItems": 2}
FIELD = make_object_schema(
    {
        **parse_member_schemas("path:text start:count end:count value:any meaning:text"),
        "unit": {"enum": ["file", "decompressed"]},
        "bits": or_null(_NUMBER_PAIR),
    },
    "space:text ok:bool",
)

_PLACE = make_object_schema(
    "start:count end:count",
    kind={"enum": ["header", "frame", "damage", "gap"]},
    record=or_null(COUNT),
    records=COUNT,
    types=make_array_schema(TEXT),
)
_CHANGED = make_object_schema({"a": or_null(FIELD), "b": or_null(FIELD), "bytes": make_array_schema(_NUMBER_PAIR)})

DIFF = make_object_schema(
    {
        "schema": schema_constant("diff"),
        "a": make_object_schema("file:name size:count"),
        "b": make_object_schema("file:name size:count"),
        "format": TEXT,
        "parts": make_array_schema(
            make_object_schema(
                {"kind": {"enum": ["same", "changed", "only-a", "only-b"]}, "a": or_null(_PLACE), "b": or_null(_PLACE)},
                records=COUNT,
                fields=make_array_schema({"anyOf": [_CHANGED, FIELD]}),
                fields_same=COUNT,
            )
        ),
        "differences": COUNT,
    }
)


# --- JSON Schemas (draft 2020-12) of the outputs ---


_FINDING = make_object_schema(
    {
        "id": {"type": "string", "enum": sorted(EXPLANATIONS)},
        "severity": {"enum": [s.label for s in Severity]},
        **parse_member_schemas("offset:count? length:count record:count? message:text facts:object"),
    }
)

_CHECKSUM = make_object_schema("algorithm:text stored:text computed:text ok:bool?")

_FILE = make_object_schema(
    {
        **parse_member_schemas(
            "path:name format:text variant:text size:count records:count? record_types:counts transactions:count "
            "durable_end:count? closed:bool?"
        ),
        "bytes": {**make_object_schema(dict.fromkeys(BYTE_CLASSES, COUNT)), "description": "sums to size"},
        "findings": make_array_schema(_FINDING),
    },
    "first_seq:int? last_seq:int? encrypted:bool details:object",
)

_NOT_LOGS = make_array_schema(
    make_object_schema({"path": NAME, "files": make_array_schema(make_object_schema("name:name kind:text"))})
)

_VERIFY = make_object_schema(
    {
        "schema": schema_constant("verify"),
        "tool": make_object_schema("name:text version:text"),
        "status": {"enum": ["clean", "findings", "incomplete"]},
        "files": make_array_schema(_FILE),
        "sets": make_array_schema(
            make_object_schema(
                {
                    **parse_member_schemas("path:name format:text members:[name]"),
                    "findings": make_array_schema(_FINDING),
                }
            )
        ),
        "summary": make_object_schema(
            {
                **parse_member_schemas("files:count bytes:count records:count"),
                "findings": make_object_schema({s.label: COUNT for s in sorted(Severity, reverse=True)}),
            },
            "left_out:counts",
        ),
    },
    failures=make_array_schema(make_object_schema("path:name message:text exit_code:int")),
    not_logs=_NOT_LOGS,
)

_RECORD = make_object_schema(
    {
        **parse_member_schemas("file:name offset:count size:count record:count type:text seq:int?"),
        "time": or_null({"type": "string", "format": "date-time"}),
        **parse_member_schemas("object:name? origin:int?"),
        "txn": or_null({"type": ["string", "integer"]}),
        "checksum": or_null(_CHECKSUM),
        "body": ANY,
        "findings": make_array_schema(_FINDING),
    },
    inner=make_object_schema("offset:count size:count"),
)

_ANNOTATE = make_object_schema(
    {
        "schema": schema_constant("annotate"),
        **parse_member_schemas("file:name size:count"),
        "fields": make_array_schema(FIELD),
        "findings": make_array_schema(_FINDING),
    }
)

_WRITTEN = make_object_schema("path:name size_before:count sha256_before:text size_after:count sha256_after:text")

_PLAN = make_object_schema(
    {
        "schema": schema_constant("plan"),
        **parse_member_schemas("format:text refused:bool reasons:[text]"),
        "files": make_array_schema(
            make_object_schema(
                {
                    **parse_member_schemas("path:name size:count"),
                    "action": {"enum": ["none", "truncate", "zero-fill", "rewrite", "remove"]},
                    **parse_member_schemas(
                        "durable_end:count? cut_bytes:count cut_valid_records:count proof:object sha256_kept:text? "
                        "sha256_cut:text?"
                    ),
                },
                inode=COUNT,
                mtime_ns={"type": "integer"},
                made_like=NAME,
                result=make_array_schema(make_object_schema("", "start:count end:count zeros:count bytes:text")),
            )
        ),
    },
    target=NAME,
    asked={"type": "object"},
    notes=make_array_schema(TEXT),
    not_logs=_NOT_LOGS,
    applied=BOOL,
    undo=or_null(NAME),
    written=make_array_schema(_WRITTEN),
)

_UNDO = make_object_schema(
    {
        "schema": schema_constant("undo"),
        "undo": NAME,
        "state": {"enum": ["prepared", "applied", "undone"]},
        **parse_member_schemas("made:text refused:bool reasons:[text]"),
        "files": make_array_schema(
            make_object_schema({"action": {"enum": ["none", "restore"]}, **_WRITTEN["properties"]})
        ),
    },
    "applied:bool",
)

_MANIFEST = make_object_schema(
    {
        "schema": schema_constant("manifest"),
        "tool": make_object_schema("name:text version:text"),
        "status": {"enum": ["complete", "stopped"]},
        **parse_member_schemas("to:text output:text?"),
        "on_damage": {"enum": ["stop", "skip", "salvage"]},
        "inputs": make_array_schema(make_object_schema("path:name format:text size:count sha256:text records:count")),
        "outputs": make_array_schema(make_object_schema("path:text rows:count size:count")),
        **parse_member_schemas("rows:count damage_rows:count findings:[object] finding_counts:counts"),
        "checks": make_array_schema(make_object_schema("name:text detail:text")),
    },
    "details:object",
)

_SERIES = make_object_schema(
    {
        "schema": schema_constant("series"),
        "by": {"enum": ["object", "type", "origin"]},
        "bucket": {"enum": ["1m", "1h", "1d"]},
        "groups": make_array_schema(make_object_schema("name:text? records:count bytes:count")),
        "over_time": make_array_schema(make_object_schema("time:text? name:text? records:count bytes:count")),
    }
)

_TRANSACTION = make_object_schema(
    {
        **parse_member_schemas("transaction:text file:text offset:count records:count bytes:count rows:count"),
        "seconds": {"type": "number", "minimum": 0},
        **parse_member_schemas("first_time:text? last_time:text? tables:counts"),
    }
)
_TRANSACTIONS = make_object_schema(
    {
        "schema": schema_constant("transactions"),
        "transactions": COUNT,
        "most": make_object_schema({name: make_array_schema(_TRANSACTION) for name in ("bytes", "rows", "duration")}),
    }
)

_FORMAT = make_object_schema(
    {
        "schema": schema_constant("format"),
        **parse_member_schemas("name:text title:text members:[text]"),
        "types": make_array_schema(make_object_schema("code:int name:text")),
        **parse_member_schemas("schemas:[text] references:[text]"),
    }
)

_EXPLAIN = make_object_schema(
    {
        "schema": schema_constant("explain"),
        "findings": make_array_schema(
            make_object_schema(dict.fromkeys(("id", "severity", "meaning", "causes", "action"), TEXT))
        ),
    },
    statuses=make_array_schema(make_object_schema(dict.fromkeys(("status", "meaning", "causes", "action"), TEXT))),
)

_PROGRESS = make_object_schema(
    {
        "schema": schema_constant("progress"),
        **parse_member_schemas("what:text done:count total:count? records:count"),
        "seconds": {"type": "number"},
    },
    left={"type": "number"},
    rate={"type": "number"},
)

_VERBS = make_object_schema(dict.fromkeys(VERBS, COUNT))

_REPLAYED_OBJECT = make_object_schema(
    {"name": NAME, **_VERBS["properties"], **parse_member_schemas("first_seq:int? last_seq:int?")},
    keys={"type": ["integer", "null"], "description": "rows at the end; null: see `unknown`"},
    digest=or_null(TEXT),
)

_REPLAY = make_object_schema(
    {
        "schema": schema_constant("replay"),
        "format": TEXT,
        "policy": {"enum": list(POLICIES)},
        "decisions": _VERBS,
        "reasons": counts_schema(),
        "objects": make_array_schema(_REPLAYED_OBJECT),
        "stops_at": or_null(make_object_schema("file:name offset:count? why:text")),
        **parse_member_schemas("position:object digest:text?"),
    },
    path=NAME,
    starts=or_null(BOOL),
    read=make_array_schema(NAME),
    findings=make_array_schema(make_object_schema({"file": NAME, **_FINDING["properties"]})),
    rules={"type": "object", "additionalProperties": TEXT},
    details={"type": "object"},
    unknown={"type": "object", "additionalProperties": TEXT, "description": "object -> why its rows are not known"},
)

_DECISION = make_object_schema(
    {
        **{name: _RECORD["properties"][name] for name in ("file", "record", "offset", "size", "type", "seq", "time")},
        "object": or_null(NAME),
        "txn": _RECORD["properties"]["txn"],
        "decision": {"enum": list(VERBS)},
        "reason": TEXT,
    }
)

_COMPARE = make_object_schema(
    {
        "schema": schema_constant("compare"),
        "equal": BOOL,
        "differs": make_array_schema(make_object_schema("name:name")),
        "replays": make_array_schema(_REPLAY),
        "others": make_array_schema(_REPLAY),
    }
)

_DIAGNOSED = make_object_schema(
    {
        **parse_member_schemas("path:name formats:[text] files:[name] bytes:count records:count"),
        "start": {"enum": ["yes", "no", "open", "unknown"], "description": "open: cannot be determined from this log"},
        **parse_member_schemas("why:text well:bool live:bool state:text"),
        "directory": or_null(make_object_schema("owner:text group:text mode:text free_bytes:count")),
        "rejected": COUNT,
        "storage_engine": make_array_schema(
            make_object_schema("committed_to:text missing:text? missing_bytes:count text:text")
        ),
        "lost": make_array_schema(
            make_object_schema(
                "file:name offset:count length:count unit:text names:[text] may_be_cut:text? after:text?"
            )
        ),
        "losses": make_array_schema(make_object_schema({"file": NAME, **_FINDING["properties"]})),
        "findings": counts_schema(),
        "plan": or_null(_PLAN),
        "steps": make_array_schema(make_object_schema("what:text command:text?")),
        **parse_member_schemas("read:[text]"),
    },
    "replay:text",
)

_DIAGNOSE = make_object_schema(
    {
        "schema": schema_constant("diagnose"),
        "tool": make_object_schema("name:text version:text"),
        "logs": make_array_schema(_DIAGNOSED),
        "failures": make_array_schema(make_object_schema("path:name message:text exit_code:int")),
        "summary": make_object_schema("logs:count well:count start:counts"),
    }
)

SCHEMAS: Mapping[str, dict[str, Any]] = {
    "verify": schema_document("verify", "verify -O json", _VERIFY),
    "record": schema_document("record", "one line of dump -O jsonl", _RECORD),
    "records": schema_document(
        "records",
        "dump -O json",
        make_object_schema({"schema": schema_constant("record"), "records": make_array_schema(_RECORD)}),
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
