"""What is said: states, actions, images, and the maths of poses."""
