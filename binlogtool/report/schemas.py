"""JSON Schemas (draft 2020-12) of the outputs, as `binlogtool schema NAME` prints them.

Outputs grow within a major version: readers must accept members that are not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlogtool.findings import EXPLANATIONS, Severity
from binlogtool.formats.replay_rules import POLICIES, VERBS
from binlogtool.recovery.report import BYTE_CLASSES
from binlogtool.report.schema_diff import DIFF, FIELD
from binlogtool.report.schema_parts import (
    ANY as _ANY,
)
from binlogtool.report.schema_parts import (
    BOOL as _BOOL,
)
from binlogtool.report.schema_parts import (
    COUNT as _COUNT,
)
from binlogtool.report.schema_parts import (
    NAME as _NAME,
)
from binlogtool.report.schema_parts import (
    TEXT as _TEXT,
)
from binlogtool.report.schema_parts import (
    counts_schema as _counts,
)
from binlogtool.report.schema_parts import (
    list_of as _list,
)
from binlogtool.report.schema_parts import (
    object_of as _object,
)
from binlogtool.report.schema_parts import (
    or_null as _or_null,
)
from binlogtool.report.schema_parts import (
    schema_constant as _constant,
)
from binlogtool.report.schema_parts import (
    schema_document as _document,
)

_INTEGER_TEXT: dict[str, Any] = {"type": ["integer", "string"], "description": "a string with --bigint string"}

_FINDING = _object(
    {
        "id": {"type": "string", "enum": sorted(EXPLANATIONS)},
        "severity": {"enum": [s.label for s in Severity]},
        "offset": _or_null(_COUNT),
        "length": _COUNT,
        "record": _or_null(_COUNT),
        "message": _TEXT,
        "facts": {"type": "object"},
    }
)

_CHECKSUM = _object({"algorithm": _TEXT, "stored": _TEXT, "computed": _TEXT, "ok": _or_null(_BOOL)})

_FILE = _object(
    {
        "path": _NAME,
        "format": _TEXT,
        "variant": _TEXT,
        "size": _COUNT,
        "records": _or_null(_COUNT),
        "record_types": _counts(),
        "transactions": _COUNT,
        "durable_end": _or_null(_COUNT),
        "closed": _or_null(_BOOL),
        "bytes": {**_object(dict.fromkeys(BYTE_CLASSES, _COUNT)), "description": "sums to size"},
        "findings": _list(_FINDING),
    },
    first_seq=_or_null({"type": "integer"}),
    last_seq=_or_null({"type": "integer"}),
    encrypted=_BOOL,
    details={"type": "object"},
)

_NOT_LOGS = _list(_object({"path": _NAME, "files": _list(_object({"name": _NAME, "kind": _TEXT}))}))

_VERIFY = _object(
    {
        "schema": _constant("verify"),
        "tool": _object({"name": _TEXT, "version": _TEXT}),
        "status": {"enum": ["clean", "findings", "incomplete"]},
        "files": _list(_FILE),
        "sets": _list(_object({"path": _NAME, "format": _TEXT, "members": _list(_NAME), "findings": _list(_FINDING)})),
        "summary": _object(
            {
                "files": _COUNT,
                "bytes": _COUNT,
                "records": _COUNT,
                "findings": _object({s.label: _COUNT for s in sorted(Severity, reverse=True)}),
            },
            left_out=_counts(),
        ),
    },
    failures=_list(_object({"path": _NAME, "message": _TEXT, "exit_code": {"type": "integer"}})),
    not_logs=_NOT_LOGS,
)

_RECORD = _object(
    {
        "file": _NAME,
        "offset": _COUNT,
        "size": _COUNT,
        "record": _COUNT,
        "type": _TEXT,
        "seq": _or_null(_INTEGER_TEXT),
        "time": _or_null({"type": "string", "format": "date-time"}),
        "object": _or_null(_NAME),
        "origin": _or_null(_INTEGER_TEXT),
        "txn": _or_null({"type": ["string", "integer"]}),
        "checksum": _or_null(_CHECKSUM),
        "body": _ANY,
        "findings": _list(_FINDING),
    },
    inner=_object({"offset": _COUNT, "size": _COUNT}),
)

_ANNOTATE = _object(
    {
        "schema": _constant("annotate"),
        "file": _NAME,
        "size": _COUNT,
        "fields": _list(FIELD),
        "findings": _list(_FINDING),
    }
)

_WRITTEN = _object(
    {
        "path": _NAME,
        "size_before": _COUNT,
        "sha256_before": _TEXT,
        "size_after": _COUNT,
        "sha256_after": _TEXT,
    }
)

_PLAN = _object(
    {
        "schema": _constant("plan"),
        "format": _TEXT,
        "refused": _BOOL,
        "reasons": _list(_TEXT),
        "files": _list(
            _object(
                {
                    "path": _NAME,
                    "size": _COUNT,
                    "action": {"enum": ["none", "truncate", "zero-fill", "rewrite", "remove"]},
                    "durable_end": _or_null(_COUNT),
                    "cut_bytes": _COUNT,
                    "cut_valid_records": _COUNT,
                    "proof": {"type": "object"},
                    "sha256_kept": _or_null(_TEXT),
                    "sha256_cut": _or_null(_TEXT),
                },
                inode=_COUNT,
                mtime_ns={"type": "integer"},
                made_like=_NAME,
                result=_list(_object({}, start=_COUNT, end=_COUNT, zeros=_COUNT, bytes=_TEXT)),
            )
        ),
    },
    target=_NAME,
    asked={"type": "object"},
    notes=_list(_TEXT),
    not_logs=_NOT_LOGS,
    applied=_BOOL,
    undo=_or_null(_NAME),
    written=_list(_WRITTEN),
)

_UNDO = _object(
    {
        "schema": _constant("undo"),
        "undo": _NAME,
        "state": {"enum": ["prepared", "applied", "undone"]},
        "made": _TEXT,
        "refused": _BOOL,
        "reasons": _list(_TEXT),
        "files": _list(
            _object({"action": {"enum": ["none", "restore"]}, **_WRITTEN["properties"]}),
        ),
    },
    applied=_BOOL,
)

_MANIFEST = _object(
    {
        "schema": _constant("manifest"),
        "tool": _object({"name": _TEXT, "version": _TEXT}),
        "status": {"enum": ["complete", "stopped"]},
        "to": _TEXT,
        "output": _or_null(_TEXT),
        "on_damage": {"enum": ["stop", "skip", "salvage"]},
        "inputs": _list(_object({"path": _NAME, "format": _TEXT, "size": _COUNT, "sha256": _TEXT, "records": _COUNT})),
        "outputs": _list(_object({"path": _TEXT, "rows": _COUNT, "size": _COUNT})),
        "rows": _COUNT,
        "damage_rows": _COUNT,
        "findings": _list({"type": "object"}),
        "finding_counts": _counts(),
        "checks": _list(_object({"name": _TEXT, "detail": _TEXT})),
    },
    details={"type": "object"},
)

_SERIES = _object(
    {
        "schema": _constant("series"),
        "by": {"enum": ["object", "type", "origin"]},
        "bucket": {"enum": ["1m", "1h", "1d"]},
        "groups": _list(_object({"name": _or_null(_TEXT), "records": _COUNT, "bytes": _COUNT})),
        "over_time": _list(
            _object({"time": _or_null(_TEXT), "name": _or_null(_TEXT), "records": _COUNT, "bytes": _COUNT})
        ),
    }
)

_FORMAT = _object(
    {
        "schema": _constant("format"),
        "name": _TEXT,
        "title": _TEXT,
        "members": _list(_TEXT),
        "types": _list(_object({"code": {"type": "integer"}, "name": _TEXT})),
        "schemas": _list(_TEXT),
        "references": _list(_TEXT),
    }
)

_EXPLAIN = _object(
    {
        "schema": _constant("explain"),
        "findings": _list(_object(dict.fromkeys(("id", "severity", "meaning", "causes", "action"), _TEXT))),
    },
    statuses=_list(_object(dict.fromkeys(("status", "meaning", "causes", "action"), _TEXT))),
)

_PROGRESS = _object(
    {
        "schema": _constant("progress"),
        "what": _TEXT,
        "done": _COUNT,
        "total": _or_null(_COUNT),
        "records": _COUNT,
        "seconds": {"type": "number"},
    },
    left={"type": "number"},
    rate={"type": "number"},
)

_VERBS = _object(dict.fromkeys(VERBS, _COUNT))

_REPLAYED_OBJECT = _object(
    {
        "name": _NAME,
        **_VERBS["properties"],
        "first_seq": _or_null({"type": "integer"}),
        "last_seq": _or_null({"type": "integer"}),
    },
    keys={"type": ["integer", "null"], "description": "rows that are there at the end; null: see `unknown`"},
    digest=_or_null(_TEXT),
)

_REPLAY = _object(
    {
        "schema": _constant("replay"),
        "format": _TEXT,
        "policy": {"enum": list(POLICIES)},
        "decisions": _VERBS,
        "reasons": _counts(),
        "objects": _list(_REPLAYED_OBJECT),
        "stops_at": _or_null(_object({"file": _NAME, "offset": _or_null(_COUNT), "why": _TEXT})),
        "position": {"type": "object"},
        "digest": _or_null(_TEXT),
    },
    path=_NAME,
    starts=_or_null(_BOOL),
    read=_list(_NAME),
    findings=_list(_object({"file": _NAME, **_FINDING["properties"]})),
    rules={"type": "object", "additionalProperties": _TEXT},
    details={"type": "object"},
    unknown={"type": "object", "additionalProperties": _TEXT, "description": "object -> why its rows are not known"},
)

_DECISION = _object(
    {
        **{name: _RECORD["properties"][name] for name in ("file", "record", "offset", "size", "type", "seq", "time")},
        "object": _or_null(_NAME),
        "txn": _RECORD["properties"]["txn"],
        "decision": {"enum": list(VERBS)},
        "reason": _TEXT,
    }
)

_COMPARE = _object(
    {
        "schema": _constant("compare"),
        "equal": _BOOL,
        "differs": _list(_object({"name": _NAME})),
        "replays": _list(_REPLAY),
        "others": _list(_REPLAY),
    }
)

_DIAGNOSED = _object(
    {
        "path": _NAME,
        "formats": _list(_TEXT),
        "files": _list(_NAME),
        "bytes": _COUNT,
        "records": _COUNT,
        "start": {"enum": ["yes", "no", "open", "unknown"], "description": "open: this log does not decide it"},
        "why": _TEXT,
        "well": _BOOL,
        "rejected": _COUNT,
        "losses": _list(_object({"file": _NAME, **_FINDING["properties"]})),
        "findings": _counts(),
        "plan": _or_null(_PLAN),
        "steps": _list(_object({"what": _TEXT, "command": _or_null(_TEXT)})),
        "read": _list(_TEXT),
    }
)

_DIAGNOSE = _object(
    {
        "schema": _constant("diagnose"),
        "tool": _object({"name": _TEXT, "version": _TEXT}),
        "logs": _list(_DIAGNOSED),
        "failures": _list(_object({"path": _NAME, "message": _TEXT, "exit_code": {"type": "integer"}})),
        "summary": _object({"logs": _COUNT, "well": _COUNT, "start": _counts()}),
    }
)

SCHEMAS: Mapping[str, dict[str, Any]] = {
    "verify": _document("verify", "verify -O json", _VERIFY),
    "record": _document("record", "one line of dump -O jsonl", _RECORD),
    "records": _document(
        "records", "dump -O json", _object({"schema": _constant("record"), "records": _list(_RECORD)})
    ),
    "series": _document("series", "stats -O json", _SERIES),
    "annotate": _document("annotate", "hexdump-annotate -O json", _ANNOTATE),
    "diff": _document("diff", "hexdump-annotate --diff -O json", DIFF),
    "plan": _document("plan", "truncate-to-durable -O json", _PLAN),
    "undo": _document("undo", "undo -O json", _UNDO),
    "replay": _document("replay", "replay-dry-run -O json", _REPLAY),
    "decision": _document("decision", "one line of replay-dry-run -O jsonl", _DECISION),
    "diagnose": _document("diagnose", "diagnose -O json", _DIAGNOSE),
    "compare": _document("compare", "replay-dry-run --compare -O json", _COMPARE),
    "manifest": _document("manifest", "convert -O json, and its --manifest", _MANIFEST),
    "format": _document("format", "formats NAME -O json", _FORMAT),
    "explain": _document("explain", "explain -O json", _EXPLAIN),
    "progress": _document("progress", "one line of --progress json", _PROGRESS),
}
"""Name -> schema."""
