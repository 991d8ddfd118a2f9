"""Adapters for files of devices and other programs; each converts units, axes and orders once."""
