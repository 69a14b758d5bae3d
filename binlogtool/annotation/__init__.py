"""Annotated bytes of a log, and the comparison of two logs."""
