"""Demonstrate without a robot: a camera on the chest, another on a hand-held gripper, both with poses.

For data collectors; docs/capture.md leads from printing the board to a trained policy.
"""
