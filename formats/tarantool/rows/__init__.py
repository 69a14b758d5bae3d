"""Rows of journal files."""
