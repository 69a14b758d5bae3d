"""What a file counts for a progress bar."""

from __future__ import annotations

from pathlib import Path

from binlogtool.core.open_file import total_size


def test_what_is_no_local_file_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert total_size([str(tmp_path / "a"), str(tmp_path), str(tmp_path / "none"), "s3://bucket/a", "-"]) == 5
