"""Predictions of starts against the verdicts that servers gave: Tarantool 3.9 and 2.6 (`predictions.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

import binlogtool

pytestmark = pytest.mark.full_corpus


def test_an_intact_log_with_one_transaction_of_1500_rows_needs_little_memory(corpus: Path) -> None:
    folder = corpus / "tarantool-3.9" / "generated" / "big_sync_transaction"
    (result,) = binlogtool.replay([folder], limits=binlogtool.Limits(max_memory=16 << 20))
    assert (result.starts, {one.name: one.keys for one in result.objects}["s"]) == (True, 1501)
