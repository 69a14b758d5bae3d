"""SQL scripts that replay or reverse the events of a binary log."""
