"""What damage means to a file."""
