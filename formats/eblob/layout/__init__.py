"""Is this a log, and of which dialect?"""
