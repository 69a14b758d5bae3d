"""Conversions to messages of connectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.invoke import Result, invoke

CHANGES = Path(__file__).resolve().parents[1] / "corpus/mysql_binlog/changes"


def written(tmp_path: Path, log: Path, *more: str, envelope: str = "debezium") -> list[dict[str, Any]]:
    output = tmp_path / "out.jsonl"
    done = convert(output, log, *more, envelope=envelope)
    assert done.code == 0, done.text + done.err
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def convert(output: Path, log: Path, *more: str, envelope: str = "debezium") -> Result:
    return invoke("convert", "--to", "jsonl", "--envelope", envelope, *more, "-o", str(output), str(log))
