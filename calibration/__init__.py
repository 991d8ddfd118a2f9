"""What is measured of a robot once: delays. Pure maths; whoever moves or shows something calls it."""
