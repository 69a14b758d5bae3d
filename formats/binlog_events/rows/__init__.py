"""TABLE_MAP and ROWS events."""
