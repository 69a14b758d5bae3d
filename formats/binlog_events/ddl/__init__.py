"""Table definitions from the DDL statements of a log."""
