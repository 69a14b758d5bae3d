"""Payloads of transactions."""
