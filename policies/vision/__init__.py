"""Vision: networks that estimate the scene from images."""
