"""A simulated Kafka: the brokers' state and the clients of confluent-kafka, on the simulator's virtual clock.

What a cluster keeps is plain data (`log`, `transactions`, `groups`, put together by `cluster`), and each request is one step on it. Time, loss and
repetition are the network's (`network`). The clients (`consumer`, `producer`, `admin`) do what librdkafka does with an answer, or without one; their
error codes and flags are those of librdkafka, and `tests/test_simulated_kafka.py` compares all of it with real brokers.
"""

from simulator.kafka.cluster import Cluster
from simulator.kafka.network import Network, RequestOutcome, clients

__all__ = ["Cluster", "Network", "RequestOutcome", "clients"]
