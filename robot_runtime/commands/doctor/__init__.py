"""`robot-runtime doctor`: checks whether a robot, its machine and its server are ready for a run."""
