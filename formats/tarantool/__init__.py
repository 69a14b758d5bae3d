"""Tarantool journal files: write-ahead logs, snapshots, and the files of the vinyl engine."""

FILE_PATTERNS = tuple(f"*.{kind}{end}" for kind in ("xlog", "snap", "vylog", "run") for end in ("", ".inprogress"))
FILE_PATTERNS += ("0000*.index", "0000*.index.inprogress", "*.xlog.corrupted")
"""File-name patterns of log files. (Other programs also write *.index files; here a name of twenty digits must begin
with zeros.)
"""
