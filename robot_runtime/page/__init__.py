"""What an operator sees of a run in a browser, and the buttons there; in a process of its own."""
