"""Event groups: transactions, and table maps with their rows."""
