"""What an applier does with the log."""
