"""Tools of the repository that measure, attack, compare and make tables; see README.md."""
