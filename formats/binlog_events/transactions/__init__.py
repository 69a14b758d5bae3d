"""Boundaries of transactions, and tracking of transactions by compiled code."""
