"""GTIDs: their events, sets and positions."""
