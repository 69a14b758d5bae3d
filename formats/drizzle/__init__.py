"""The Drizzle transaction log: a sequence of entries, each a protobuf message with a CRC-32."""

FILE_PATTERNS = ("transaction.log", "transaction.log.*", "*.log")
"""File-name patterns of log files."""
