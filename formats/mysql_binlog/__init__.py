"""Binary log of MySQL and MariaDB: a chain of version 4 events, also as relay log."""

from binlogtool.formats.mysql_binlog.members.names import FILE_PATTERNS

__all__ = ["FILE_PATTERNS"]
