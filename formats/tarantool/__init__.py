"""Tarantool journal files: write-ahead logs, snapshots, and the files of the vinyl engine."""

FILE_PATTERNS = tuple(f"*.{kind}{end}" for kind in ("xlog", "snap", "vylog", "run") for end in ("", ".inprogress"))
FILE_PATTERNS += ("0000*.index", "0000*.index.inprogress", "*.xlog.corrupted")
"""File names that files of a log can have. (Other programs have *.index, too; twenty digits begin with zeros.)"""
