"""The eblob binlog: changes that reached a blob while it was being sorted; no checksums, nine dialects."""

FILE_PATTERNS = ("*.binlog",)
"""File-name patterns of log files."""
