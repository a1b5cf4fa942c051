"""The simulator's own tests: the service's processes and simulated Kafka, on a virtual clock. What
compares it with real brokers is in `tests/broker`.
"""
