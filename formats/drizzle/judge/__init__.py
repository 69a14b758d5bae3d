"""Validation of a transaction log."""
