"""Payloads of transactions: field types, kernels, JSON lines."""
