"""Is the log whole?"""
