"""Replay prediction."""
