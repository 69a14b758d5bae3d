"""The eblob binlog: the changes that reached one blob while it was being sorted; no checksums, nine dialects."""

FILE_PATTERNS = ("*.binlog",)
"""File names that files of a log can have."""
