"""`robot-runtime capture`: one module per subcommand."""
