"""What damage means to a log."""
