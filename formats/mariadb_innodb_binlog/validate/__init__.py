"""Validation of one file and of a log set."""
