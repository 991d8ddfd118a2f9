"""Third-party simulators, each with an env, an expert and the inputs of its policies."""
