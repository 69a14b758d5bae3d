"""Transactions: boundaries, and tracking by compiled code."""
