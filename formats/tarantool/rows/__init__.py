"""Rows of journal files: parsing, and JSON lines."""
