"""Validation of logs, snapshots, metadata logs, runs and indexes."""
