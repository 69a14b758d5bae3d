"""Prediction of what servers do with a log."""
