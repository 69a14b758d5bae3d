"""Verify, plan, truncate, salvage, undo, replay and diagnose; `transaction` alone writes to a log."""
