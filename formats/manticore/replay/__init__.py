"""What a starting server does with the log."""
