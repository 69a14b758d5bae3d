"""The eblob binlog: the changes that reached one blob while it was being sorted; no checksum, four dialects."""

MEMBERS = ("*.binlog",)
"""File names that files of a log can have."""
