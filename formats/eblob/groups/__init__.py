"""Which records belong together: overwrites and removals."""
