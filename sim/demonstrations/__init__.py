"""Demonstrations by the scripted experts."""
