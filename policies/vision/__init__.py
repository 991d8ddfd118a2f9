"""Policies that see: networks that estimate the scene from images."""
