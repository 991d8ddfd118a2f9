"""`python -m scripts.bench faults`: what happens when something is late, wrong or gone, and how often."""
