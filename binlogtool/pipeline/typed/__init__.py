"""Typed tables: the changed rows of a log, a directory of files for each of its tables."""
