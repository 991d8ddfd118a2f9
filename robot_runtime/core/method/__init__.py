"""The table of methods: its parts, which of them a policy can take, and which one to choose."""
