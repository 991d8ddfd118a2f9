"""One simulated scene: model, world, cameras, drivers."""
