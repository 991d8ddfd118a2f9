"""Real-time runtime for learned robot policies: asynchronous action chunks, realigned to the robot."""
