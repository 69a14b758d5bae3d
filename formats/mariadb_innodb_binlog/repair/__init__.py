"""Repair of the files of a log."""
