"""Learned policies: what runs on the GPU machine. Torch lives here."""
