"""Scripts that damage, kill, flood and wear out the runtime, and count what holds."""
