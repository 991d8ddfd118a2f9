"""Serves LeRobot's policies."""
