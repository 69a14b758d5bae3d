"""Validation of log files and of a binlog directory."""
