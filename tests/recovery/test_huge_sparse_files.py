"""A log of a few bytes in a file of 1 TB: what reads it ends at once, what would hash the hole refuses to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import binlogtool
from binlogtool.errors import LimitError
from tests.harness.mysql_writer import MARIADB, binlog, query, transaction


def test_a_plan_does_not_hash_a_hole_of_a_terabyte(tmp_path: Path) -> None:
    log = tmp_path / "bin.000001"
    log.write_bytes(binlog(transaction(query(b"insert into t values (1)")), MARIADB))
    os.truncate(log, 1 << 40)
    began = time.process_time()
    (file,) = binlogtool.verify([log]).files
    assert file.size == 1 << 40
    with pytest.raises(LimitError, match="are holes in the file"):
        binlogtool.plan_truncate(log)
    assert time.process_time() - began < 20
