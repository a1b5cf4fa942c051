"""Needs real brokers, and at most one stage of the service, without Spark."""
