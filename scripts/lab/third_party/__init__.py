"""Simulators that others wrote, each with an env, an expert and what a policy is told there."""
