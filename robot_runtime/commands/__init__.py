"""Commands that run a robot and inspect its runs."""
