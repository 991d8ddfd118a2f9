"""Drivers of robot hardware and of operator devices, one vendor per file."""
