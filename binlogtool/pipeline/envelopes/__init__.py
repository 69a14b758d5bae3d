"""Messages about changes of rows, in the shapes that others made known."""
