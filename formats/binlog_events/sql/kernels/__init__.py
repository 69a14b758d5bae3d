"""The frequent events of scripts by compiled code."""
