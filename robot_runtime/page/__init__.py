"""What a person sees of a run in a browser, and the buttons she has there; in a process of its own."""
