"""Comparisons of methods and of other people's engines, with their results."""
