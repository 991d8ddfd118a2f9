"""LeRobot's policies, served."""
