"""Value types: states, actions, images, and the maths of poses."""
