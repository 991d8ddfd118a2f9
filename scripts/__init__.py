"""What measures, attacks, compares and makes tables; for the repository alone, see README.md."""
