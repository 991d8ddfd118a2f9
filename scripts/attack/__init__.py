"""What damages, kills, floods and wears out, and counts what holds."""
