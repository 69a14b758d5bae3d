"""`diagnose` and `convert --on-damage skip` list the transactions, LSN and TID that damage destroyed."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

import binlogtool
from tests.cli.invoke import invoke

MIDDLE = [
    "flip_plain_block", "flip_zstd_block", "flip_stored_crc", "fixheader_length_past_eof", "fixheader_length_too_big",
    "fixheader_length_too_small", "fixheader_length_not_uint", "fixheader_padding_broken", "magic_broken",
    "garbage_between_blocks", "garbage_with_false_magics", "zeroed_512_bytes",
]  # fmt: skip
"""Damage between two readable blocks; the manifest lists the rows that Tarantool no longer reads."""


def lost_rows(log: Path) -> list[tuple[int, int]]:
    """(replica, LSN) of every row that `diagnose` names."""
    (one,) = binlogtool.diagnose([log]).logs
    rows = []
    for lost in one.lost:
        for source, first, last in lost.numbers:
            replica = 0 if source == "local " else int(source.rstrip(":") or 1)
            rows += [(replica, number) for number in range(first, last + 1)]
    return sorted(rows)


@pytest.mark.parametrize("case", MIDDLE)
def test_the_rows_that_tarantool_lost_are_named(corpus: Path, case: str) -> None:
    root = corpus / "tarantool/generated/damaged"
    manifest = json.loads((root / "manifest.json").read_text("utf-8"))
    expected = next(one["expected"] for one in manifest["cases"] if one["case"] == case)
    assert lost_rows(root / case / expected["file"]) == sorted(map(tuple, expected["rows_lost"]))


def transactions_at(text: str, offsets: list[int]) -> list[str]:
    """The transactions that contain these offsets, by the output of the server's own tool for the intact log."""
    starts: list[tuple[int, str]] = []
    at = 0
    for line in text.splitlines():
        if match := re.match(r"# at (\d+)$", line):
            at = int(match[1])
        elif match := re.search(r"\tGTID (\d+-\d+-\d+)|SESSION\.GTID_NEXT= '([^']+:\d+)'", line):
            starts.append((at, match[1] or match[2]))
    return [max(start for start in starts if start[0] <= offset)[1] for offset in offsets]


@pytest.mark.parametrize("server", ["mariadb-10.11", "mariadb-11.8", "mysql-9.7"])
def test_the_transactions_in_damaged_bytes_are_named(corpus: Path, server: str) -> None:
    root = corpus / "mysql-binlog/generated"
    cases = [
        one for one in json.loads((root / "damaged/expected.json").read_text("utf-8"))
        if one["file"].startswith(f"damaged/{server}/crc-") and "checksum" in one["expect"].get("detected_by", ())
        and re.match("bytes? [0-9 and]+( xor .*)?$", one["change"]) and "fd-bitflip" not in one["file"]
    ]  # fmt: skip
    assert cases
    for case in cases:
        text = gzip.decompress((root / f"{case['base']}.txt.gz").read_bytes()).decode("utf-8", "replace")
        offsets = [int(number) for number in re.findall(r"\d+", case["change"].partition(" xor")[0])]
        (one,) = binlogtool.diagnose([root / case["file"]]).logs
        assert [name for lost in one.lost for name in lost.names] == transactions_at(text, offsets), case["file"]


def test_a_script_names_the_transactions_that_it_leaves_out(corpus: Path, tmp_path: Path) -> None:
    log = corpus / "mysql-binlog/generated/damaged/mariadb-11.8/crc-two-damages.bin"
    done = invoke("convert", "--to", "sql", "--on-damage", "skip", "-o", str(tmp_path / "x.sql"), str(log))
    said = done.text + done.err
    assert "0x00004677  damaged-range: 2,034 bytes, transaction 1-2-7\n" in said
    assert "0x0000d0d6  damaged-range: 249 bytes, transaction 1-2-17\n" in said


def test_an_unfinished_transaction_is_named_and_the_start_is_no_alarm(samples: Path) -> None:
    done = invoke("diagnose", str(samples / "guides/mariadb-crashed"))
    assert done.code == 0
    assert "transaction 0-1-8 (16 bytes at the end that cannot be read)" in done.text
    assert f"binlogtool truncate-to-durable {samples / 'guides/mariadb-crashed'}" in done.text


def test_a_torn_end_is_placed_after_the_last_lsn(samples: Path) -> None:
    done = invoke("diagnose", str(samples / "guides/tarantool-torn"))
    assert done.code == 0 and "68 bytes that cannot be read after LSN 48" in done.text


def test_an_intact_log_loses_nothing(samples: Path) -> None:
    for name in ("mariadb", "readme/intact"):
        folder = samples / name if "/" in name else samples / "guides" / name
        assert all(one.lost == () for one in binlogtool.diagnose([folder]).logs)
