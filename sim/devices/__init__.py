"""Simulated robots that speak the real protocols, for tests and fault injection of drivers."""
