"""A simulated person with a chest camera and a hand-held gripper, the rig, and the hidden ground truth."""
