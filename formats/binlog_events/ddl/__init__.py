"""Table definitions from DDL statements."""
