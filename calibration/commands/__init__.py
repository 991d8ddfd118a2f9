"""Commands that calibrate cameras and robots, and label captures."""
