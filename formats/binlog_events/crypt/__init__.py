"""Encrypted logs."""
