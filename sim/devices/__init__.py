"""Robots without hardware that speak the real protocols: what drivers are tried and broken against."""
