"""`robot-runtime doctor`: whether a robot, its machine and its server are fit for a run."""
