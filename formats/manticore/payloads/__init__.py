"""The payloads of transactions."""
