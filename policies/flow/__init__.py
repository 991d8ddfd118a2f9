"""Flow-matching action-chunk policies on state features."""
