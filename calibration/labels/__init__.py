"""Computes labels from a capture: the hand in the virtual base, the base on the floor, and covariances."""
