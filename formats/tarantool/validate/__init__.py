"""Validation of logs, snapshots, vinyl files and data directories."""
