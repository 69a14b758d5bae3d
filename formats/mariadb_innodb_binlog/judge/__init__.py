"""Validation of files and of the log."""
