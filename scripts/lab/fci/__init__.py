"""The Franka driver as a whole: `pick_place` on a robot that speaks the real protocol, `franky-sim`."""
