"""The inference server: a network thread with all sessions, a worker thread with the policy."""
