"""What servers do with a log."""
