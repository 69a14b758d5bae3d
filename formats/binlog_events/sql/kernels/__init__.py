"""SQL scripts by compiled code."""
