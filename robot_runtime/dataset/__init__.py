"""Datasets in LeRobot v3: written episode by episode, checked, merged, split."""
