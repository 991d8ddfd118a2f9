"""Demonstrations of the scripted experts."""
