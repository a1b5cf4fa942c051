"""reo: the command line, and what stands around both stages: run, verify, demo."""
