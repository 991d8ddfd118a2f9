"""A simulated person with a chest camera and a hand-held gripper, and her rig, with hidden truth."""
