"""Typed tables: the changed rows of a log as tables with their own columns, one directory per table."""
