"""Events of servers that are newer than this program: read where they stand, and found behind a damage."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool
from tests.formats.mysql_binlog import make_log as make

ROLLED_BACK = b"\0" * 12


@pytest.mark.parametrize("code", [43, 63, 172, 191])
def test_an_event_of_an_unknown_type_is_counted_in_front_of_a_damage_and_behind_it(code: int, tmp_path: Path) -> None:
    newer = make.event(code, ROLLED_BACK)
    (path := tmp_path / "binlog.000001").write_bytes(make.log([newer, b"\x0a", newer]))
    report = binlogtool.verify([path]).files[0]
    with binlogtool.open(path) as log:
        offsets = [record.offset for record in log.records()]
    first = len(make.log([]))
    assert (report.records, offsets) == (3, [4, first, first + len(newer) + 1])
