"""Other people's runtimes on our policies, in our simulation: imported, not imitated."""
