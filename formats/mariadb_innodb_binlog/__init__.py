"""The binary log that MariaDB stores inside InnoDB (`binlog-NNNNNN.ibb`), and the redo log that recovers it."""

FILE_PATTERNS = ("binlog-[0-9]*.ibb",)
"""File-name patterns of log files."""
