"""Predict what a server does with a log when it starts: which records it applies, skips or stops at."""
