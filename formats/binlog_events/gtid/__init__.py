"""GTIDs: the events that carry them, sets and positions."""
