"""The binary log that MariaDB keeps inside InnoDB (`binlog-NNNNNN.ibb`), and the redo log that recovers it."""
