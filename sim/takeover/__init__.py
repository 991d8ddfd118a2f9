"""A policy that is made bad on purpose, and a scripted person who takes over from it."""
