"""Groups of records: overwrites and removals."""
