"""Encrypted binary logs with their keys: cut behind the last whole transaction, as the server's own tool lists them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import binlogtool
from binlogtool.errors import RefusedError
from binlogtool.findings import Severity
from tests.formats.mysql_binlog import crypt_samples

SERVERS = (*crypt_samples.MARIA, crypt_samples.MYSQL)
GTIDS = {162, 33}


def durable_ends(corpus: Path, server: str, number: int) -> list[int]:
    """File offsets at which no transaction is open: ends of events in front of a GTID event, and of the last one."""
    listed, _ = crypt_samples.printed(
        crypt_samples.folder(corpus, server) / f"enc-bin.{number:06}.txt.gz", server == crypt_samples.MYSQL
    )
    added = 512 if server == crypt_samples.MYSQL else 0  # the header in front of the encrypted part
    pairs = zip(listed, [*listed[1:], None], strict=True)
    return [one.end + added for one, after in pairs if after is None or after.type in GTIDS or after.type == 4]


@pytest.mark.full
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("number", [1, 2])
def test_an_encrypted_log_is_cut_behind_its_last_whole_transaction(
    corpus: Path, tmp_path: Path, server: str, number: int
) -> None:
    home = crypt_samples.folder(corpus, server)
    name = "keyring.json" if server == crypt_samples.MYSQL else "keys.txt"
    reading: dict[str, Any] = {"hints": binlogtool.read_hints(keyfile=home / name), "format": "mysql-binlog"}
    whole = (home / f"enc-bin.{number:06}").read_bytes()
    ends = durable_ends(corpus, server, number)
    path = tmp_path / f"enc-bin.{number:06}"
    outcomes: Counter[str] = Counter()
    for cut in range(ends[0] + 1, len(whole), 977):
        data = whole[:cut]
        path.write_bytes(data)
        end = max(one for one in ends if one <= cut)
        plan = binlogtool.plan_truncate(path, **reading)
        if end == cut:
            assert not plan.changes
            continue
        assert plan.reasons == (), cut
        done = binlogtool.apply_plan(plan, **reading)
        assert path.read_bytes() == data[:end], (cut, end)
        (report,) = binlogtool.verify([path], **reading).files
        assert max((f.severity for f in report.findings), default=Severity.NOTE) < Severity.ERROR
        assert done.undo is not None
        binlogtool.undo(done.undo)
        assert path.read_bytes() == data
        Path(done.undo).unlink()
        outcomes["repaired"] += 1
    print(f"\nencrypted, {server} {number}: {dict(outcomes)}")
    assert outcomes["repaired"] >= 2


@pytest.mark.parametrize("server", SERVERS)
def test_without_the_keys_nothing_is_cut_at_a_guess(corpus: Path, tmp_path: Path, server: str) -> None:
    """The borders of events are all that can be seen: a cut there could fall inside a transaction."""
    whole = (crypt_samples.folder(corpus, server) / "enc-bin.000001").read_bytes()
    path = tmp_path / "enc-bin.000001"
    path.write_bytes(whole[:-100])
    plan = binlogtool.plan_truncate(path)
    assert plan.refused
    with pytest.raises(RefusedError):
        binlogtool.apply_plan(plan)
    assert path.read_bytes() == whole[:-100]
