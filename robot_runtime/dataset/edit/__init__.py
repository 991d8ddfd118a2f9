"""Datasets made of datasets: merged, split, relabelled."""
