"""What devices and other programs write, one adapter each; units, axes, orders are converted there, once."""
