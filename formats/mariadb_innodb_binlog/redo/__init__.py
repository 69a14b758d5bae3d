"""Read the InnoDB redo log, and predict the recovery of binlog files from it."""
