"""The eblob binlog: the changes that reached one blob while it was being sorted; no checksums, nine dialects."""

FILE_PATTERNS = ("*.binlog",)
"""Patterns of the names of a log's files."""
