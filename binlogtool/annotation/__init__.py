"""Annotate the bytes of a log, and compare two logs."""
