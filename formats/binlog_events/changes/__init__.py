"""The changes of rows that events tell."""
