"""The InnoDB redo log."""
