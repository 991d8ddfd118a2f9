"""Record, check and label demonstrations captured without a robot.

A camera on the chest and another on a hand-held gripper record images and poses. docs/capture.md explains all
steps from printing the board to a trained policy.
"""
