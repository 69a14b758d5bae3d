"""Which events belong together: transactions, and table maps with their rows."""
