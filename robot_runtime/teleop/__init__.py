"""A person leads the robot: from what a device reads to what the executor is led by."""
