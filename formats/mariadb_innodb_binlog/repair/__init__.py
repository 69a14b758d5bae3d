"""What a repair makes of the files of a log."""
