"""Runs the service's own processes in one thread, on a virtual clock, against a simulated Kafka; every decision comes from one seed."""
