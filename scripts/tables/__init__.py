"""Tables and pictures of README and docs/, from the files of `scripts/results`."""
