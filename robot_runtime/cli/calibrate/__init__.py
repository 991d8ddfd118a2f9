"""`robot-runtime calibrate`: one module per subcommand."""
