"""The robot's process: drivers, cameras, client, control loop, records."""
