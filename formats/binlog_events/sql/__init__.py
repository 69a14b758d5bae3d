"""Events as SQL scripts, and flashback."""
