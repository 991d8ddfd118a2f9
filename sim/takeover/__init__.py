"""A deliberately faulty policy, and a scripted person who takes over from it."""
