"""`robot-runtime bench faults`: what happens when something is late, wrong or gone, injected and measured."""
