"""Where a file can be cut into parts that are read alone."""
