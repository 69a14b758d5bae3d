"""Terminal output: escaping, hexdumps, tables, progress."""
