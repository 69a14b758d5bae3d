"""The binary log that MariaDB keeps inside InnoDB (`binlog-NNNNNN.ibb`), and the redo log that recovers it."""

FILE_PATTERNS = ("binlog-[0-9]*.ibb",)
"""Patterns of the names of a log's files."""
