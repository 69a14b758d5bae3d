"""GTID events, sets and states."""
