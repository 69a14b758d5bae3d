"""The table binary log of Manticore Search, and of Sphinx, its ancestor."""

MEMBERS = ("binlog.meta", "binlog.meta.new", "binlog.[0-9]*")
"""File names that files of a log can have."""
