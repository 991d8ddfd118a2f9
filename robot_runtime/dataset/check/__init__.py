"""Finds faults in a dataset, and which of its episodes can be learned from: `check_dataset`."""
