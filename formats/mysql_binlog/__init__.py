"""Binary log of MySQL and MariaDB: a chain of version 4 events, also as relay log."""

from binlogtool.formats.mysql_binlog.members.names import MEMBERS

__all__ = ["MEMBERS"]
