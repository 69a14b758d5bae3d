"""TABLE_MAP and row events."""
