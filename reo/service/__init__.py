"""The service: starts both stages, restarts them, and answers on one HTTP port."""
