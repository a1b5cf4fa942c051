"""What verifies the project, and is not installed: it needs a checkout. The Makefile runs each."""
