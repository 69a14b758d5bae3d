"""Verify, plan, truncate, salvage, undo, replay and diagnose; only `transaction` and the undo modules change a log."""
