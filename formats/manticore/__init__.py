"""The table binary log of Manticore Search and of its ancestor Sphinx."""

FILE_PATTERNS = ("binlog.meta", "binlog.meta.new", *("binlog." + "[0-9]" * digits for digits in range(3, 11)))
"""File-name patterns of log files."""
