"""Detection and layout of binary logs."""
