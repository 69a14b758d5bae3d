"""The binary log of MySQL and MariaDB: a chain of events (version 4), also as relay log."""

from binlogtool.formats.mysql_binlog.members.names import MEMBERS

__all__ = ["MEMBERS"]
