"""Prediction of what a server's applier does with events."""
