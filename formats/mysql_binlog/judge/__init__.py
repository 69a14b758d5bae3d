"""Validation of binary logs."""
