"""Commands that calibrate cameras and robots, and make labels of captures."""
