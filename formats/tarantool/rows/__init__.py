"""Rows: a header and a body."""
