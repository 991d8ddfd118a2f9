"""`python -m scripts.bench faults`: injects faults and measures the robot's reaction."""
